import { setTimeout } from "node:timers/promises";

/** How long to wait between two tries. */
const PAUSE_MS = 2_000;
/** How long one request may take. */
const ANSWER_MS = 10_000;

/** Headers that every answer under `/v1` has. */
const HEADERS = [
  "cache-control",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
];

/** The header with which `/health` names the version that answers. */
const VERSION_HEADER = "X-Service-Version";

/** The version to test. */
interface TestedVersion {
  id: string;
  /** The headers with which a request gets it while another version has the traffic. */
  headers?: Record<string, string>;
}

/**
 * Asks a version what any stranger may ask, until it answers well: a new address or version takes a moment to be
 * everywhere. Until then, the version before it answers.
 *
 * @param address its public address, without a path.
 * @param seconds how long it may take.
 * @returns the faults of the last responses; empty if there are none.
 */
export async function testVersion(
  address: string,
  seconds: number,
  version: TestedVersion,
): Promise<string[]> {
  const late = performance.now() + seconds * 1000;
  for (;;) {
    const faults = await findFaults(address, version);
    if (faults.length === 0 || performance.now() + PAUSE_MS > late) return faults;
    await setTimeout(PAUSE_MS);
  }
}

async function findFaults(address: string, { id, headers }: TestedVersion): Promise<string[]> {
  const health = await get(address, "/health", headers);
  if (typeof health === "string") return [health];
  const { status } = health;
  const answering = health.headers.get(VERSION_HEADER);
  // A Worker that throws answers with a page of Cloudflare's, which names nothing.
  if (answering !== id)
    return [
      `GET /health responds with ${status}, from ${answering ? `the version ${answering}` : "a server that names no version"}, not from ${id}`,
    ];
  const isHealthy =
    status === 200 || (status === 503 && headers !== undefined && (await isFailing(address)));
  return [
    ...(isHealthy ? [] : [`GET /health responds with ${status}`]),
    ...(await checkRefusal(address, headers)),
  ];
}

/**
 * Whether `/health` of the version with the traffic fails. `/health` answers what the scheduled job of that version has
 * found, so a version without traffic repeats its 503. Refusing it for that would refuse the cure.
 */
async function isFailing(address: string): Promise<boolean> {
  const health = await get(address, "/health");
  return typeof health !== "string" && health.status >= 500;
}

/** An invented key is refused as the contract says. */
async function checkRefusal(address: string, headers?: Record<string, string>): Promise<string[]> {
  const answer = await get(address, "/v1/automations", {
    ...headers,
    Authorization: "Bearer key_live_smoke",
  });
  if (typeof answer === "string") return [answer];
  const missing = HEADERS.find((name) => !answer.headers.has(name));
  if (missing) return [`GET /v1/automations responds without ${missing}`];
  // The address of whoever deploys may be blocked.
  if (answer.status === 401 || answer.status === 429) return [];
  return [`GET /v1/automations responds to an invented key with ${answer.status}`];
}

/** @returns the response, without its body, or why there is none. */
async function get(
  address: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<Response | string> {
  try {
    const response = await fetch(new URL(path, address), {
      headers,
      redirect: "manual",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    await response.body?.cancel();
    return response;
  } catch (error) {
    const { cause, message } = error as Error;
    return `GET ${path} gets no answer (${cause instanceof Error ? cause.message : message})`;
  }
}
