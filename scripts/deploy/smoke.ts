import { setTimeout } from "node:timers/promises";

/** How long to wait between two tries. */
const PAUSE_MS = 2_000;
/** How long one request may take. */
const ANSWER_MS = 10_000;

/** The status of `/health` while the service has a problem. */
const UNHEALTHY = 503;

/** Headers that every answer under `/v1` has. */
const HEADERS = [
  "cache-control",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
];

/** The header with which `/health` names the version that answers. */
const VERSION_HEADER = "X-Service-Version";

const NAMELESS = `GET /health responds without ${VERSION_HEADER}, so it may be another version that responds: if the address is new, or a proxy removes headers, deploy with --at-once`;

/** The version to test. */
interface TestedVersion {
  id: string;
  /** The headers with which a request gets it while another version has the traffic. */
  headers?: Record<string, string>;
}

/** The result of a test. */
interface TestResult {
  /** The faults of the last responses; empty if there are none. */
  faults: string[];
  /** Whether the version gave them. A new address may have no server yet, or still another one. */
  isItsOwn: boolean;
  /** Whether its `/health` fails, and that of the version with the traffic, too. */
  isUnhealthy: boolean;
}

/** The result of an answer that may be another version's. */
const UNKNOWN = { isItsOwn: false, isUnhealthy: false };

/**
 * Asks a version what any stranger may ask, until it answers well: a new address or version takes a moment to be
 * everywhere. Until then, the version before it answers.
 *
 * @param address its public address, without a path.
 * @param seconds how long it may take.
 */
export async function testVersion(
  address: string,
  seconds: number,
  version: TestedVersion,
): Promise<TestResult> {
  const late = performance.now() + seconds * 1000;
  for (;;) {
    const result = await testOnce(address, version);
    if (result.faults.length === 0 || performance.now() + PAUSE_MS > late) return result;
    await setTimeout(PAUSE_MS);
  }
}

async function testOnce(address: string, version: TestedVersion): Promise<TestResult> {
  const ask: Ask = (path, headers) => get(address, path, { ...version.headers, ...headers });
  const health = await ask("/health");
  if (typeof health === "string") return { faults: [health], ...UNKNOWN };
  const answering = health.headers.get(VERSION_HEADER);
  if (answering && answering !== version.id) {
    const fault = `GET /health is answered by the version ${answering}, not by ${version.id}`;
    return { faults: [fault], ...UNKNOWN };
  }
  // A proxy may remove the header. It may then also remove the one that names a version, so that the version before
  // this one is tested.
  if (!answering && version.headers !== undefined) {
    const faults = [checkHealth(health), NAMELESS].filter((fault) => fault !== null);
    return { faults, ...UNKNOWN };
  }
  const isUnhealthy =
    health.status === UNHEALTHY && version.headers !== undefined && (await isFailing(address));
  const healthFault = isUnhealthy ? null : checkHealth(health);
  return {
    faults: [healthFault, await checkRefusal(ask)].filter((fault) => fault !== null),
    // A Worker that throws answers with a page of Cloudflare's, which names nothing.
    isItsOwn: !!answering || health.headers.has("x-ratelimit-limit") || health.status >= 500,
    isUnhealthy,
  };
}

/**
 * Whether `/health` of the version with the traffic fails. `/health` answers what the scheduled job of that version has
 * found, so a version without traffic repeats its 503. Refusing it for that would refuse the cure.
 */
async function isFailing(address: string): Promise<boolean> {
  const health = await get(address, "/health", {});
  return typeof health !== "string" && health.status >= 500;
}

type Ask = (path: string, headers?: Record<string, string>) => Promise<Answer | string>;

/** An invented key is refused as the contract says. */
async function checkRefusal(ask: Ask): Promise<string | null> {
  const answer = await ask("/v1/automations", { Authorization: "Bearer key_live_smoke" });
  if (typeof answer === "string") return answer;
  const missing = HEADERS.find((name) => !answer.headers.has(name));
  if (missing) return `GET /v1/automations responds without ${missing}`;
  // The address of whoever deploys may be blocked.
  if (answer.status === 401 || answer.status === 429) return null;
  return `GET /v1/automations responds to an invented key with ${answer.status}`;
}

/** The service is healthy. */
function checkHealth({ status, json }: Answer): string | null {
  if (status === 200 && json?.status === "ok") return null;
  return `GET /health responds with ${status}${status === 200 ? ", and not with its status" : ""}`;
}

interface Answer {
  status: number;
  headers: Headers;
  json: Record<string, unknown> | null;
}

/** @returns the answer, or why there is none. */
async function get(
  address: string,
  path: string,
  headers: Record<string, string>,
): Promise<Answer | string> {
  try {
    const response = await fetch(new URL(path, address), {
      headers,
      redirect: "manual",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    const json = (await response.json().catch(() => null)) as Record<string, unknown> | null;
    return { status: response.status, headers: response.headers, json };
  } catch (error) {
    const { cause, message } = error as Error;
    return `GET ${path} gets no answer (${cause instanceof Error ? cause.message : message})`;
  }
}
