import type { Context, Next } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { openDatabase } from "../db/client.ts";
import { bindingOf } from "../db/databases.ts";
import { EarlySession, type ReadPoint } from "../db/session.ts";
import { logError } from "../log.ts";
import { type AddressName, addressAlias, nameAddress } from "../rate-limit/address.ts";
import { hashApiKey, isApiKey } from "../rate-limit/api-key.ts";
import { callObject } from "../rate-limit/call.ts";
import type { UncountedRefusals } from "../rate-limit/key-gate.ts";
import {
  failingAddresses,
  type KeyRefusal,
  knownKeys,
  REFUSING_MS,
  recentRefusals,
  unknownKeys,
} from "../rate-limit/memory.ts";
import { type RateLimit, resetSeconds } from "../rate-limit/window.ts";
import { GuardedClient } from "../workspaces/write-guard.ts";
import { readBody, takesBody } from "./body.ts";
import type { AppEnv } from "./context.ts";

/** The key and the workspace of a request, and the window that counts it. */
interface Identity {
  keyId: string;
  workspaceId: string;
  rateLimit: RateLimit;
}

/** The decision whether a request is handled. */
type Admission =
  | ({ isAdmitted: true } & Identity & {
        /** The name of the workspace's database. */
        database: string;
        /** A bookmark of that database; reads for this request must not be older. */
        bookmark: string | null;
      })
  /** `error` is the response: a refusal, or the failure of the gate. */
  | { isAdmitted: false; identity: Identity | null; error: unknown };

/**
 * Authenticates all requests under `/v1`. A request is admitted if its key is valid, the workspace has access, and the
 * key's window has requests left. If this isolate has just cached a refusal of the key, the request is refused without
 * a call of the key's gate.
 *
 * A write takes these steps, so that the client cannot delay it once it is admitted:
 * 1. Its body is read.
 * 2. The key's gate admits it.
 * 3. The route handles it. Its transactions fail if the key has ended in the meantime.
 * 4. The gate stores the bookmark of the write.
 *
 * A read takes one network hop less if this isolate has cached the workspace of its key:
 * 1. The route reads at once, while the key's gate decides. With a key that is not cached, it waits for the gate.
 * 2. A result that is older than the gate's bookmark, or from another database, is read again.
 * 3. If the gate refuses the request, the refusal is the response, whatever the route has read.
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
  const recent = recentRefusals.find(keyHash, Date.now());
  if (recent) throw enter(c, refuse(keyHash, recent));
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  await (isRead ? handleRead(c, next, keyHash) : handleWrite(c, next, keyHash));
});

/** Handles a read with a replica that is at least as recent as the bookmark of the key's gate. */
async function handleRead(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  const known = knownKeys.get(keyHash);
  const asked = admit(c, keyHash);
  if (!known) {
    const error = enter(c, await asked);
    if (error) throw error;
  } else c.set("workspaceId", known.workspaceId);
  c.set(
    "refusal",
    asked.then((admission) => (admission.isAdmitted ? null : admission.error)),
  );
  const required = asked.then((admission) => {
    if (!admission.isAdmitted) throw admission.error;
    return readPoint(c, admission);
  });
  // A refusal becomes the response below or in `answerError`, even if the route reads nothing.
  required.catch(() => {});
  const session = new EarlySession(known ? readPoint(c, known) : await required, required);
  c.set("db", openDatabase(session));
  await next();
  const admission = await asked;
  const error = enter(c, admission);
  if (error && !c.error) throw error;
  if (!admission.isAdmitted) return;
  const { database } = admission;
  remember(c, keyHash, database, session.bookmarkOf(bindingOf(c.env, database)));
}

/** Handles a write once it is admitted, and raises the bookmark of the key, so that it reads its own writes. */
async function handleWrite(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  if (takesBody(c)) await readBody(c);
  const admission = await admit(c, keyHash);
  const error = enter(c, admission);
  if (!admission.isAdmitted) throw error;
  const { database, workspaceId, keyId } = admission;
  const session = bindingOf(c.env, database).withSession("first-primary");
  c.set("db", openDatabase(new GuardedClient(session, workspaceId, { keyId })));
  await next();
  const bookmark = session.getBookmark();
  const isRefused = c.res.status >= 400 && c.res.status < 500;
  if (bookmark === null || isRefused) return;
  remember(c, keyHash, database, bookmark);
  try {
    await callObject(c.env, c.env.KEY_GATE, keyHash, (gate) => gate.advance(bookmark, database));
  } catch (failure) {
    // The error is only logged, because the write itself has succeeded.
    logError("bookmark_update_failed", failure, { requestId: c.get("requestId") });
  }
}

/** Lets the key's gate decide whether the request is admitted. */
async function admit(c: Context<AppEnv>, keyHash: string): Promise<Admission> {
  try {
    const askedAt = Date.now();
    const uncounted = takeUncounted(keyHash);
    const answer = await callObject(c.env, c.env.KEY_GATE, keyHash, (gate) =>
      gate.admit(keyHash, undefined, uncounted),
    );
    if (answer.verdict === "unknown_key") {
      knownKeys.delete(keyHash);
      unknownKeys.set(keyHash, askedAt + REFUSING_MS);
      return { isAdmitted: false, identity: null, error: await countFailure(c) };
    }
    const { keyId, workspaceId, rateLimit } = answer;
    if (answer.verdict === "admitted") {
      const { database, bookmark } = answer;
      return { isAdmitted: true, keyId, workspaceId, rateLimit, database, bookmark };
    }
    const { verdict, expiresAt } = answer;
    const refusal = { verdict, keyId, workspaceId, rateLimit, expiresAt };
    recentRefusals.note(keyHash, refusal, askedAt, expiresAt ?? undefined);
    return refuse(keyHash, refusal);
  } catch (error) {
    return { isAdmitted: false, identity: null, error };
  }
}

/** Makes the refusal of a request whose key is valid. */
function refuse(keyHash: string, refusal: KeyRefusal): Admission {
  if (refusal.verdict === "rate_limited")
    return { isAdmitted: false, identity: refusal, error: rateLimited(refusal.rateLimit) };
  knownKeys.delete(keyHash);
  const error = new ApiError("workspace_access_denied");
  return { isAdmitted: false, identity: refusal, error };
}

/**
 * Sets the key, workspace and window of the request, for the handlers, the headers and the log.
 *
 * @returns the error to respond with; undefined if the request is admitted.
 */
function enter(c: Context<AppEnv>, admission: Admission): unknown {
  const identity = admission.isAdmitted ? admission : admission.identity;
  if (identity) {
    c.set("keyId", identity.keyId);
    c.set("workspaceId", identity.workspaceId);
    c.set("rateLimit", identity.rateLimit);
  }
  if (!admission.isAdmitted) return admission.error;
  c.set("placement", { database: admission.database });
  return undefined;
}

function readPoint(
  c: Context<AppEnv>,
  { database, bookmark }: { database: string; bookmark: string | null },
): ReadPoint {
  return { binding: bindingOf(c.env, database), bookmark };
}

/** Takes the 429s with the key that this isolate returned from its cache, and that the gate has not counted yet. */
function takeUncounted(keyHash: string): UncountedRefusals | undefined {
  const known = recentRefusals.take(keyHash);
  if (!known?.count || known.answer.verdict !== "rate_limited") return undefined;
  return { count: known.count, at: known.at };
}

function remember(
  c: Context<AppEnv>,
  keyHash: string,
  database: string,
  bookmark: string | null,
): void {
  knownKeys.set(keyHash, { workspaceId: c.get("workspaceId"), database, bookmark });
}

/** Returns the token of an `Authorization` header (RFC 6750; the scheme in any case); null if there is none. */
export function parseBearer(header: string | undefined): string | null {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}

/**
 * Counts an authentication failure against the IP address, unless the request is a preflight.
 *
 * @returns the error to respond with.
 */
export async function countFailure(c: Context<AppEnv>): Promise<ApiError> {
  const { network, block } = addressOf(c);
  await noteAddress(c);
  const askedAt = Date.now();
  const recent = [network, block].map((name) => failingAddresses.find(name, askedAt));
  const known = recent.find((refusal) => refusal !== null);
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
