import type { Context, Next } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { openDatabase } from "../db/client.ts";
import { bindingOf } from "../db/databases.ts";
import { EarlyReads, openSession, type ReadPoint } from "../db/session.ts";
import { logError } from "../log.ts";
import { type AddressName, addressAlias, nameAddress } from "../rate-limit/address.ts";
import { callObject } from "../rate-limit/call.ts";
import {
  failingAddresses,
  type KeyRefusal,
  type KnownKey,
  knownKeys,
  REFUSING_MS,
  recentRefusals,
  unknownKeys,
} from "../rate-limit/isolate-cache.ts";
import type { UncountedRefusals } from "../rate-limit/key-gate.ts";
import { hashApiKey, isApiKey } from "../rate-limit/key-text.ts";
import { type RateLimit, resetSeconds } from "../rate-limit/window.ts";
import { GuardedClient } from "../workspaces/write-guard.ts";
import { readBody, takesBody } from "./body.ts";
import type { Admission, AppEnv } from "./context.ts";

/**
 * Authenticates all requests under `/v1`. A request is admitted if its key is valid, the workspace has access, and the
 * key's window has requests left. If this isolate has just cached a refusal of a key whose window is used up, the
 * request is refused without a call to the key's gate.
 *
 * A write takes these steps, in an order that lets no client delay it once it is admitted:
 * 1. Its body is read.
 * 2. The key's gate admits it.
 * 3. The route handles it. Its transactions fail if the key was revoked, or access has ended, in the meantime.
 * 4. The gate stores the bookmark of the write.
 *
 * A read takes one network hop less if this isolate has cached the workspace of its key:
 * 1. The route reads at once, while the key's gate decides.
 * 2. A result that is older than the gate's bookmark, or from another database, is read again.
 * 3. If the gate refuses the request, the refusal is the response, whatever the route has read.
 *
 * @throws ApiError `invalid_api_key`, `workspace_access_denied` or `rate_limited`, in this order. An IP address that has
 *   failed too often gets `rate_limited` instead of `invalid_api_key`.
 */
export const authenticate = createMiddleware<AppEnv>(async (c, next) => {
  await noteAddress(c);
  const key = await readApiKey(c);
  if (key === null) throw await failedAuthentication(c);
  const keyHash = await hashApiKey(key);
  if (Date.now() < (unknownKeys.get(keyHash) ?? 0)) throw await failedAuthentication(c);
  const repeated = recentRefusals.repeatRefusal(keyHash, Date.now());
  if (repeated) {
    setIdentity(c, repeated);
    throw toError(repeated);
  }
  const known = knownKeys.get(keyHash);
  if (c.req.method !== "GET" && c.req.method !== "HEAD") await handleWrite(c, next, keyHash);
  else if (known) await handleEarlyRead(c, next, keyHash, known);
  else await handleFirstRead(c, next, keyHash);
});

/** Handles a write once it is admitted, and raises the bookmark of the key, so that it reads its own writes. */
async function handleWrite(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  if (takesBody(c)) await readBody(c);
  const admission = await admit(c, keyHash);
  if (!admission.isAdmitted) throw admission.error;
  const { database } = admission;
  const session = bindingOf(c.env, database).withSession("first-primary");
  const keyId = c.get("keyId");
  c.set("db", openDatabase(new GuardedClient(session, c.get("workspaceId"), { keyId })));
  await next();
  const bookmark = session.getBookmark();
  // A 4xx has written nothing, as a rule, whereas a 5xx may have.
  const isRefused = c.res.status >= 400 && c.res.status < 500;
  if (bookmark === null || isRefused) return;
  cacheKey(c, keyHash, database, bookmark);
  try {
    await callObject(c.env, c.env.KEY_GATE, keyHash, (gate) => gate.advance(bookmark, database));
  } catch (failure) {
    // The error is only logged, because the write itself has succeeded.
    logError("bookmark_update_failed", failure, { requestId: c.get("requestId") });
  }
}

/** Handles a read once it is admitted, because this isolate has not cached the workspace of its key. */
async function handleFirstRead(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  const admission = await admit(c, keyHash);
  if (!admission.isAdmitted) throw admission.error;
  const session = openSession(readPoint(c, admission));
  c.set("db", openDatabase(session));
  await next();
  cacheKey(c, keyHash, admission.database, session.getBookmark());
}

/** Handles a read at once, while the key's gate decides, because this isolate has cached the workspace of its key. */
async function handleEarlyRead(
  c: Context<AppEnv>,
  next: Next,
  keyHash: string,
  known: KnownKey,
): Promise<void> {
  c.set("workspaceId", known.workspaceId);
  const admission = admit(c, keyHash);
  const required = admission.then((decided) => {
    // Not the error of the decision, with which `handleError` responds: if the gate has failed with an error that can be
    // retried, the database client would read again.
    if (!decided.isAdmitted) throw new Error("the request is not admitted");
    return readPoint(c, decided);
  });
  const reads = new EarlyReads(readPoint(c, known), required);
  c.set("db", openDatabase(reads));
  // Hono passes an error of the route to `handleError`, and sets `c.error`, so `next` does not reject.
  await next();
  const decided = await admission;
  if (decided.isAdmitted) {
    const { database } = decided;
    cacheKey(c, keyHash, database, reads.bookmarkOf(bindingOf(c.env, database)));
  } else if (!c.error) {
    // A route that succeeds without a read must still be refused. If the route failed, `handleError` has awaited this
    // admission, and responded with the refusal.
    throw decided.error;
  }
}

/** Lets the key's gate decide about the request. The decision is stored for `handleError`. */
function admit(c: Context<AppEnv>, keyHash: string): Promise<Admission> {
  const admission = callGate(c, keyHash);
  c.set("admission", admission);
  return admission;
}

/**
 * Calls the key's gate, and returns its decision. Sets the key, the workspace and the window of the request, for the
 * handlers, the headers and the log.
 */
async function callGate(c: Context<AppEnv>, keyHash: string): Promise<Admission> {
  try {
    const calledAt = Date.now();
    const uncounted = takeUncounted(keyHash);
    const result = await callObject(c.env, c.env.KEY_GATE, keyHash, (gate) =>
      gate.admit(keyHash, uncounted),
    );
    if (result.verdict === "unknown_key") {
      knownKeys.delete(keyHash);
      unknownKeys.set(keyHash, calledAt + REFUSING_MS);
      return { isAdmitted: false, error: await failedAuthentication(c) };
    }
    setIdentity(c, result);
    if (result.verdict === "admitted") {
      const { database, bookmark } = result;
      c.set("database", database);
      return { isAdmitted: true, database, bookmark };
    }
    const { verdict, keyId, workspaceId, rateLimit, expiresAt } = result;
    const refusal = { verdict, keyId, workspaceId, rateLimit, expiresAt };
    // Repeated only if the window is used up.
    recentRefusals.set(keyHash, refusal, calledAt, expiresAt ?? undefined);
    if (verdict === "access_denied") knownKeys.delete(keyHash);
    return { isAdmitted: false, error: toError(refusal) };
  } catch (error) {
    return { isAdmitted: false, error };
  }
}

function setIdentity(
  c: Context<AppEnv>,
  { keyId, workspaceId, rateLimit }: { keyId: string; workspaceId: string; rateLimit: RateLimit },
): void {
  c.set("keyId", keyId);
  c.set("workspaceId", workspaceId);
  c.set("rateLimit", rateLimit);
}

function toError({ verdict, rateLimit }: KeyRefusal): ApiError {
  return verdict === "rate_limited"
    ? rateLimited(rateLimit)
    : new ApiError("workspace_access_denied");
}

function readPoint(
  c: Context<AppEnv>,
  { database, bookmark }: { database: string; bookmark: string | null },
): ReadPoint {
  return { binding: bindingOf(c.env, database), bookmark };
}

/**
 * Takes the 429s with the key that this isolate returned from its cache, and that the gate has not counted yet. Removes
 * the cached refusal with them, because the gate is about to decide anew, and `callGate` caches what it decides.
 */
function takeUncounted(keyHash: string): UncountedRefusals | undefined {
  const removed = recentRefusals.remove(keyHash);
  if (!removed?.repeated || removed.result.verdict !== "rate_limited") return undefined;
  // They were returned within `REFUSING_MS` before this time, which is exact enough for a window.
  return { count: removed.repeated, at: removed.repeatableUntil };
}

/** Checks again, as a write does, that the access of an admitted request has not ended. @throws ApiError if it has. */
export async function confirmAccess(c: Context<AppEnv>): Promise<void> {
  const admission = await c.get("admission");
  if (admission && !admission.isAdmitted) throw admission.error;
  const primary = bindingOf(c.env, c.get("database")).withSession("first-primary");
  await new GuardedClient(primary, c.get("workspaceId"), { keyId: c.get("keyId") }).check();
}

/** Caches the workspace of an admitted key, and how recent its reads were; a request without a read has no bookmark. */
function cacheKey(
  c: Context<AppEnv>,
  keyHash: string,
  database: string,
  bookmark: string | null,
): void {
  const earlier = knownKeys.get(keyHash);
  const known = earlier?.database === database ? earlier.bookmark : null;
  knownKeys.set(keyHash, {
    workspaceId: c.get("workspaceId"),
    database,
    bookmark: bookmark ?? known,
  });
}

/** Reads the API key of the request; null if there is none, or its checksum is wrong, so that it was never issued. */
export async function readApiKey(c: Context<AppEnv>): Promise<string | null> {
  const key = parseBearer(c.req.header("Authorization"));
  return key !== null && (await isApiKey(c.env.API_KEY_CHECKSUM_KEYS, key)) ? key : null;
}

/** Returns the token of an `Authorization` header (RFC 6750; the scheme in any case); null if there is none. */
export function parseBearer(header: string | undefined): string | null {
  return /^bearer +(\S+)$/i.exec(header ?? "")?.[1] ?? null;
}

/**
 * Counts an authentication failure against the IP address, unless the request is a preflight.
 *
 * @returns the error to respond with.
 */
export async function failedAuthentication(c: Context<AppEnv>): Promise<ApiError> {
  const { network, block } = addressOf(c);
  await noteAddress(c);
  const calledAt = Date.now();
  const recent = [network, block].map((name) => failingAddresses.repeatRefusal(name, calledAt));
  const known = recent.find((refusal) => refusal !== null);
  if (known) {
    c.set("rateLimit", known.rateLimit);
    return rateLimited(known.rateLimit);
  }
  if (isPreflight(c)) return new ApiError("invalid_api_key");
  const failure = await callObject(c.env, c.env.ADDRESS_GATE, network, (gate) => gate.fail(block));
  const { blocked, rateLimit } = failure;
  c.set("rateLimit", rateLimit);
  failingAddresses.set(blocked === "network" ? network : block, { rateLimit }, calledAt);
  return blocked ? rateLimited(rateLimit) : new ApiError("invalid_api_key");
}

/**
 * Whether the request is a browser's CORS preflight (Fetch Standard). A preflight never carries a key, so it is
 * refused, but does not count as a failure.
 */
function isPreflight({ req }: Context<AppEnv>): boolean {
  return (
    req.method === "OPTIONS" &&
    req.header("Origin") !== undefined &&
    req.header("Access-Control-Request-Method") !== undefined &&
    req.header("Authorization") === undefined
  );
}

/**
 * Returns the failure window of the request's IP address, as far as this isolate has cached it. It does not call the
 * gate of the address, so that requests without a key cost nothing.
 */
export function addressWindow(c: Context<AppEnv>): RateLimit {
  const known = failingAddresses.findWindow(addressOf(c).block, Date.now());
  if (known) return known;
  const limit = Number(c.env.AUTH_FAILURES);
  const resetMs = Number(c.env.AUTH_FAILURE_WINDOW_SECONDS) * 1000;
  return { limit, remaining: limit, resetMs };
}

/** Sets the pseudonym of the IP address for the log, even with a valid key, because a key may have been stolen. */
export async function noteAddress(c: Context<AppEnv>): Promise<void> {
  if (c.get("address")) return;
  c.set("address", await addressAlias(c.env.API_KEY_CHECKSUM_KEYS, addressOf(c).block));
}

function addressOf(c: Context<AppEnv>): AddressName {
  return nameAddress(c.req.header("CF-Connecting-IP"));
}

function rateLimited(rateLimit: RateLimit): ApiError {
  return new ApiError("rate_limited", { retry_after_seconds: resetSeconds(rateLimit) });
}
