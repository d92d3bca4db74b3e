import type { Context, Next } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { openDatabase } from "../db/client.ts";
import { bindingOf } from "../db/databases.ts";
import { causeOf } from "../db/errors.ts";
import { EarlySession, type ReadPoint } from "../db/session.ts";
import { logError } from "../log.ts";
import { type AddressName, addressAlias, nameAddress } from "../rate-limit/address.ts";
import { hashApiKey, isApiKey } from "../rate-limit/api-key.ts";
import { callObject } from "../rate-limit/call.ts";
import type { RefusedElsewhere } from "../rate-limit/key-gate.ts";
import {
  failingAddresses,
  type KeyRefusal,
  knownKeys,
  REFUSING_MS,
  unknownKeys,
  usedUpKeys,
} from "../rate-limit/memory.ts";
import { type RateLimit, resetSeconds } from "../rate-limit/window.ts";
import type { AppEnv } from "./context.ts";

/**
 * Authenticates everything under `/v1`: admits a request if its key is valid and has quota left, and
 * gives the handlers its workspace. What this isolate has just seen refused is refused without a call.
 *
 *                           a read, by a key admitted here before        a write, or any other read
 *   key's gate   ──────────  ├─ admit ─┤                                  ├─ admit ─┤
 *   database     ──────────  ├─ read ──┤ and again if that was too old              ├─ read or write ─┤
 *   key's gate   ──────────                                              after a write: ├─ advance ─┤
 *
 * If a read is refused, what was read early is discarded.
 *
 * @throws ApiError `invalid_api_key`, `workspace_access_denied` or `rate_limited`, in this order.
 */
export const authenticate = createMiddleware<AppEnv>(async (c, next) => {
  await noteAddress(c);
  const key = parseBearer(c.req.header("Authorization"));
  if (key === null || !(await isApiKey(c.env.API_KEY_CHECKSUM_KEYS, key)))
    throw await countFailure(c);
  const keyHash = await hashApiKey(key);
  if (Date.now() < (unknownKeys.get(keyHash) ?? 0)) throw await countFailure(c);
  const usedUp = usedUpKeys.findUsedUp(keyHash, Date.now());
  if (usedUp) throw refuse(c, keyHash, usedUp);
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  await (isRead ? handleRead(c, next, keyHash) : handleWrite(c, next, keyHash));
});

/** Serves a read from a replica that is at least as new as the bookmark of the key's gate. */
async function handleRead(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  const known = knownKeys.get(keyHash);
  const admission = admit(c, keyHash);
  // Handled below, once the handler is done.
  admission.catch(() => {});
  if (known) c.set("workspaceId", known.workspaceId);
  const since = known ? pointOf(c, known) : await admission;
  const session = new EarlySession(since, admission);
  c.set("db", openDatabase(session));
  await next();
  try {
    const { binding } = await admission;
    remember(c, keyHash, session.bookmarkOf(binding));
  } catch (refusal) {
    if (refusal === causeOf(c.error)) return;
    // Otherwise the discarded response's headers would be kept.
    c.res = undefined;
    throw refusal;
  }
}

/** Serves a write once it is admitted, and lets the key read its own writes everywhere. */
async function handleWrite(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  const { binding } = await admit(c, keyHash);
  const session = binding.withSession("first-primary");
  c.set("db", openDatabase(session));
  await next();
  const bookmark = session.getBookmark();
  const refused = c.res.status >= 400 && c.res.status < 500;
  if (bookmark === null || refused) return;
  remember(c, keyHash, bookmark);
  try {
    const { database } = c.get("placement");
    await callObject(c.env, c.env.KEY_GATE, keyHash, (gate) => gate.advance(bookmark, database));
  } catch (error) {
    // The write itself has succeeded.
    logError("bookmark_lost", error, { requestId: c.get("requestId") });
  }
}

/**
 * Asks the key's gate to admit the request.
 *
 * @returns the workspace's database, and the bookmark that reads from it must not be older than.
 * @throws ApiError if the gate refuses.
 */
async function admit(c: Context<AppEnv>, keyHash: string): Promise<ReadPoint> {
  const askedAt = Date.now();
  const refused = takeRefused(keyHash);
  const admission = await callObject(c.env, c.env.KEY_GATE, keyHash, (gate) =>
    gate.admit(keyHash, undefined, refused),
  );
  if (admission.verdict === "unknown_key") {
    knownKeys.delete(keyHash);
    unknownKeys.set(keyHash, askedAt + REFUSING_MS);
    throw await countFailure(c);
  }
  if (admission.verdict === "admitted") {
    identify(c, admission);
    const { database, bookmark } = admission;
    c.set("placement", { database });
    return pointOf(c, { database, bookmark });
  }
  const { verdict, keyId, workspaceId, rateLimit, expiresAt } = admission;
  const refusal = { verdict, keyId, workspaceId, rateLimit, expiresAt };
  usedUpKeys.note(keyHash, refusal, askedAt, expiresAt ?? undefined);
  throw refuse(c, keyHash, refusal);
}

function pointOf(
  c: Context<AppEnv>,
  { database, bookmark }: { database: string; bookmark: string | null },
): ReadPoint {
  return { binding: bindingOf(c.env, database), bookmark };
}

/** The requests answered 429 here since the gate was last asked, for the gate to count. */
function takeRefused(keyHash: string): RefusedElsewhere | undefined {
  const known = usedUpKeys.take(keyHash);
  if (!known?.count || known.answer.verdict !== "quota_exceeded") return undefined;
  return { count: known.count, at: known.at };
}

/** The error for a refusal. */
function refuse(c: Context<AppEnv>, keyHash: string, refusal: KeyRefusal): ApiError {
  identify(c, refusal);
  if (refusal.verdict === "access_denied") {
    knownKeys.delete(keyHash);
    return new ApiError("workspace_access_denied");
  }
  return rateLimited(refusal.rateLimit);
}

/** Notes whose request it is, for the handlers, the headers and the log. */
function identify(
  c: Context<AppEnv>,
  { keyId, workspaceId, rateLimit }: Omit<KeyRefusal, "verdict" | "expiresAt">,
): void {
  c.set("keyId", keyId);
  c.set("workspaceId", workspaceId);
  c.set("rateLimit", rateLimit);
}

function remember(c: Context<AppEnv>, keyHash: string, bookmark: string | null): void {
  knownKeys.set(keyHash, {
    workspaceId: c.get("workspaceId"),
    database: c.get("placement").database,
    bookmark,
  });
}

/** The token of an `Authorization` header (RFC 6750; the scheme in any case); null if there is none. */
export function parseBearer(header: string | undefined): string | null {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}

/**
 * Counts an authentication failure against the address, unless it is a preflight.
 *
 * @returns the error to answer with.
 */
export async function countFailure(c: Context<AppEnv>): Promise<ApiError> {
  const { network, block } = addressOf(c);
  await noteAddress(c);
  const askedAt = Date.now();
  const usedUp = [network, block].map((name) => failingAddresses.findUsedUp(name, askedAt));
  const known = usedUp.find((each) => each !== null);
  if (known) {
    c.set("rateLimit", known.rateLimit);
    return rateLimited(known.rateLimit);
  }
  if (isPreflight(c)) return new ApiError("invalid_api_key");
  const failure = await callObject(c.env, c.env.ADDRESS_GATE, network, (gate) => gate.fail(block));
  const { blocked, rateLimit } = failure;
  c.set("rateLimit", rateLimit);
  failingAddresses.note(blocked === "network" ? network : block, { rateLimit }, askedAt);
  return blocked ? rateLimited(rateLimit) : new ApiError("invalid_api_key");
}

/**
 * Whether a browser asks what a page of another origin may send (Fetch Standard, CORS-preflight fetch). It
 * never carries a key, so it is refused, but does not count as a failure.
 */
function isPreflight({ req }: Context<AppEnv>): boolean {
  const [origin, method] = ["Origin", "Access-Control-Request-Method"].map((name) =>
    req.header(name),
  );
  const hasKey = req.header("Authorization") !== undefined;
  return req.method === "OPTIONS" && origin !== undefined && method !== undefined && !hasKey;
}

/**
 * The failure window of the request's IP address, as far as this isolate knows it. It does not call the
 * address's gate, so that requests without a key cost nothing.
 */
export function addressWindow(c: Context<AppEnv>): RateLimit {
  const known = failingAddresses.findWindow(addressOf(c).block, Date.now());
  if (known) return known;
  const limit = Number(c.env.AUTH_FAILURES);
  const resetMs = Number(c.env.AUTH_FAILURE_WINDOW_SECONDS) * 1000;
  return { limit, remaining: limit, resetMs };
}

/** Notes who asks, for the log: whoever has a key may not be who should have it. */
async function noteAddress(c: Context<AppEnv>): Promise<void> {
  if (c.get("address")) return;
  c.set("address", await addressAlias(c.env.API_KEY_CHECKSUM_KEYS, addressOf(c).block));
}

function addressOf(c: Context<AppEnv>): AddressName {
  return nameAddress(c.req.header("CF-Connecting-IP"));
}

function rateLimited(rateLimit: RateLimit): ApiError {
  return new ApiError("rate_limited", { retry_after_seconds: resetSeconds(rateLimit) });
}
