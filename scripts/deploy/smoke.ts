import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { ROOT } from "../shared/checkout.ts";

/** How long to wait between two tries. */
const PAUSE_MS = 2_000;
/** How long one request may take. */
const ANSWER_MS = 10_000;

/** The status of `/health` while the service has a problem. */
export const UNHEALTHY = 503;

/** Headers that every answer under `/v1` has. */
const HEADERS = [
  "cache-control",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
];

/** The header with which `/health` names the version that answers. */
const VERSION_HEADER = "X-Service-Version";

/** The version whose answers count. */
export interface TestedVersion {
  id: string;
  /** The headers with which a request gets it while it has no traffic. */
  headers?: Record<string, string>;
  /** Whether `/health` may answer 503, because it did before this version was there. */
  wasUnhealthy?: boolean;
}

/**
 * Asks a deployment what any stranger may ask, until it answers well: a new address or version takes a
 * moment to be everywhere. Until then, the version before it answers.
 *
 * @param address its public address, without a path.
 * @param seconds how long it may take.
 * @returns what is wrong with the last answers; empty if nothing is.
 */
export async function findFaults(
  address: string,
  seconds: number,
  version: TestedVersion,
): Promise<string[]> {
  const late = performance.now() + seconds * 1000;
  const ask: Ask = (path, headers) => get(address, path, { ...version.headers, ...headers });
  for (;;) {
    const faults = await findFaultsOnce(ask, version);
    if (faults.length === 0 || performance.now() + PAUSE_MS > late) return faults;
    await setTimeout(PAUSE_MS);
  }
}

async function findFaultsOnce(ask: Ask, version: TestedVersion): Promise<string[]> {
  const health = await ask("/health");
  if (typeof health === "string") return [health];
  const answering = health.headers.get(VERSION_HEADER);
  if (answering !== version.id)
    return [
      `GET /health is answered by ${answering ? `the version ${answering}` : "a server that names no version"}, not by ${version.id}`,
    ];
  const faults = [
    checkHealth(health, version),
    ...(await Promise.all([checkRefusal(ask), checkDocument(ask)])),
  ];
  return faults.filter((fault) => fault !== null);
}

/**
 * Asks the version that serves for its health.
 *
 * @returns the status of `/health`; null if nothing answers, or another server.
 */
export async function askHealth(address: string): Promise<number | null> {
  const answer = await get(address, "/health", {});
  if (typeof answer === "string" || !answer.headers.has("x-ratelimit-limit")) return null;
  return answer.status;
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

/** The document is that of this checkout. */
async function checkDocument(ask: Ask): Promise<string | null> {
  const answer = await ask("/openapi.json");
  if (typeof answer === "string") return answer;
  const own = JSON.parse(readFileSync(join(ROOT, "openapi.json"), "utf8"));
  return isDeepStrictEqual(withoutOwn(answer.json), withoutOwn(own))
    ? null
    : "GET /openapi.json is not the document of this checkout";
}

/** A document without what each deployment has of its own: its address and its contact. */
function withoutOwn(document: Record<string, unknown> | null) {
  return { ...document, servers: null, info: { ...(document?.info as object), contact: null } };
}

/**
 * `/health` answers what the scheduled job of the version that serves has found, so a version without traffic repeats
 * the 503 of the one that it is to replace. Refusing it for that would refuse the cure.
 */
function checkHealth(answer: Answer, { wasUnhealthy }: TestedVersion): string | null {
  if (answer.status === 200 && answer.json?.status === "ok") return null;
  if (answer.status === UNHEALTHY && wasUnhealthy) return null;
  return `GET /health responds with ${answer.status}`;
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
