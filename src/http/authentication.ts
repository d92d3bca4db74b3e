import type { Context, Next } from "hono";
import { createMiddleware } from "hono/factory";
import ipaddr from "ipaddr.js";
import { ApiError } from "../contract/errors.ts";
import { openDatabase } from "../db/databases.ts";
import { mac } from "../encryption/key-ring.ts";
import { toHex } from "../primitives/bytes.ts";
import type { AddressName } from "../rate-limit/address-gate.ts";
import { callWithRetries, failingAddresses, keyResults } from "../rate-limit/gates.ts";
import type { GateResult, KeyAdmission, KeyRefusal } from "../rate-limit/key-gate.ts";
import { hashApiKey, isApiKey } from "../rate-limit/key-text.ts";
import { type RateLimit, resetSeconds } from "../rate-limit/window.ts";
import { guardWrites } from "../workspaces/write-guard.ts";
import { readBody } from "./body.ts";
import type { AppEnv } from "./context.ts";

/**
 * Authenticates all requests under `/v1`. A request is admitted if its key is valid, the workspace has access, and the
 * key's window has requests left.
 *
 * A write takes these steps, in an order that lets no client delay it once it is admitted:
 * 1. Its body is read, up to a size and for a limited time. An error, such as 413, comes after a refusal.
 * 2. The key's gate admits it.
 * 3. The route throws the error of the body (`jsonBody`), or handles the request. Its transactions fail if the key was
 *    revoked, or access has ended, in the meantime.
 *
 * A read takes one network hop less if this isolate has cached the workspace of its key (`handleRead`).
 *
 * @throws ApiError `invalid_api_key`, `workspace_access_denied` or `rate_limited`, in this order. An IP address that has
 *   failed too often gets `rate_limited` instead of `invalid_api_key`.
 */
export const authenticate = createMiddleware<AppEnv>(async (c, next) => {
  const keyHash = await identifyKey(c);
  if (c.req.method === "GET" || c.req.method === "HEAD") return handleRead(c, next, keyHash);
  // The `jsonBody` of the route gets the same text, or throws the same error.
  await readBody(c).catch(() => {});
  const { workspaceId, keyId, database } = await admit(c, keyHash);
  const db = openDatabase(c.env, database, guardWrites(workspaceId, { keyId }));
  c.set("placement", { database, db });
  await next();
});

/** Handles a read. If this isolate has cached the workspace of the key, the route reads before the gate has decided. */
async function handleRead(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  const early = keyResults.beginEarlyRead(keyHash);
  if (early) return readEarly(c, next, early.known, admit(c, keyHash).finally(early.end));
  const { database } = await admit(c, keyHash);
  c.set("readAdmitted", (work) => work(openDatabase(c.env, database)));
  return next();
}

/**
 * Handles a read while the key's gate decides. The result is dropped if the gate refuses the request, and read again if
 * the workspace may have moved meanwhile. If it moves later, its rows and its data key are still in the database that it has
 * left (`LEFT_BEHIND_MS` in moving/move.ts).
 */
async function readEarly(
  c: Context<AppEnv>,
  next: Next,
  known: KeyAdmission,
  admission: Promise<KeyAdmission>,
): Promise<void> {
  // Its failure is thrown at the end.
  admission.catch(() => {});
  c.set("workspaceId", known.workspaceId);
  c.set("readAdmitted", async (work) => {
    const early = work(openDatabase(c.env, known.database));
    // A failure only matters once the request is admitted.
    early.catch(() => {});
    const { database, statusReadAt } = await admission;
    // The gate may still run a version that does not return `statusReadAt`.
    const hasStayed = database === known.database && statusReadAt === known.statusReadAt;
    return hasStayed ? early : work(openDatabase(c.env, database));
  });
  await next();
  // A refusal, or an error of the gate, takes the place of the route's own response, such as a 400. If the route awaited its
  // read, it has thrown this failure already (`c.error`). Hono has then made the response, which is not made twice.
  await admission.catch((failure) => {
    if (failure !== c.error) throw failure;
  });
}

/**
 * Reads the key of a request, without a call to its gate. If this isolate has just cached a refusal of a key that
 * is unknown, or whose window is used up, the request is refused.
 *
 * @returns the hash of the key.
 */
export async function identifyKey(c: Context<AppEnv>): Promise<string> {
  await setAddressPseudonym(c);
  const keyHash = await readKeyHash(c);
  if (keyHash === null) throw await failedAuthentication(c);
  const repeated = keyResults.repeatRefusal(keyHash, Date.now());
  if (repeated) throw await refusalOf(c, repeated);
  return keyHash;
}

/**
 * Lets the key's gate decide about a request. Sets the key, the workspace and the window of the request, for the
 * handlers, the headers and the log.
 *
 * @throws ApiError if the gate refuses it.
 */
export async function admit(c: Context<AppEnv>, keyHash: string): Promise<KeyAdmission> {
  const calledAt = Date.now();
  const uncounted = keyResults.takeUncounted(keyHash);
  const result = await callWithRetries(c.env, c.env.KEY_GATE, keyHash, (gate) =>
    gate.admit(keyHash, uncounted),
  );
  keyResults.set(keyHash, result, calledAt);
  if (result.verdict !== "admitted") throw await refusalOf(c, result);
  setIdentity(c, result);
  return result;
}

function setIdentity(
  c: Context<AppEnv>,
  { keyId, workspaceId, rateLimit }: KeyAdmission | KeyRefusal,
): void {
  c.set("keyId", keyId);
  c.set("workspaceId", workspaceId);
  c.set("rateLimit", rateLimit);
}

/** Returns the error to respond with if a key's gate refuses a request. */
async function refusalOf(
  c: Context<AppEnv>,
  result: Exclude<GateResult, KeyAdmission>,
): Promise<ApiError> {
  if (result.verdict === "unknown_key") return failedAuthentication(c);
  setIdentity(c, result);
  return result.verdict === "rate_limited"
    ? rateLimited(result.rateLimit)
    : new ApiError("workspace_access_denied");
}

/** Returns the hash of the request's API key; null if there is none, or its checksum is wrong, so that it was never issued. */
export async function readKeyHash(c: Context<AppEnv>): Promise<string | null> {
  const key = parseBearer(c.req.header("Authorization"));
  if (key === null) return null;
  const keyHash = await hashApiKey(key);
  // The gate of a key is called only if its checksum is right, so that of a known key need not be computed again.
  if (keyResults.has(keyHash)) return keyHash;
  return (await isApiKey(c.env.API_KEY_CHECKSUM_KEYS, key)) ? keyHash : null;
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
  const name = addressOf(c);
  const { network, block } = name;
  const calledAt = Date.now();
  const usedUp = failingAddresses.findUsedUp(name, calledAt);
  if (usedUp) {
    c.set("rateLimit", usedUp);
    return rateLimited(usedUp);
  }
  if (isPreflight(c)) return new ApiError("invalid_api_key");
  const failure = await callWithRetries(c.env, c.env.ADDRESS_GATE, network, (gate) =>
    gate.fail(block),
  );
  const { blocked, rateLimit } = failure;
  c.set("rateLimit", rateLimit);
  failingAddresses.set(blocked === "network" ? network : block, rateLimit, calledAt);
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
  const known = failingAddresses.find(addressOf(c), Date.now());
  if (known) return known;
  const limit = Number(c.env.AUTH_FAILURES);
  const resetMs = Number(c.env.AUTH_FAILURE_WINDOW_SECONDS) * 1000;
  return { limit, remaining: limit, resetMs };
}

/**
 * Sets the pseudonym of the IP address for the log, even with a valid key, because a key may have been stolen. An address
 * always has the same one, until `API_KEY_CHECKSUM_KEYS` is rotated. It cannot be reversed without that secret.
 */
export async function setAddressPseudonym(c: Context<AppEnv>): Promise<void> {
  const bytes = await mac(c.env.API_KEY_CHECKSUM_KEYS, `address ${addressOf(c).block}`);
  c.set("address", toHex(new Uint8Array(bytes.buffer, 0, 8)));
}

function addressOf(c: Context<AppEnv>): AddressName {
  return nameAddress(c.req.header("CF-Connecting-IP"));
}

/**
 * Returns the names under which an IP address is counted. IPv4 addresses count individually. IPv6 addresses count by
 * /64, the smallest block that a network customer gets, and by /48, the largest that one usually gets.
 */
export function nameAddress(address: string | undefined): AddressName {
  if (!address || !ipaddr.isValid(address)) return { network: "unknown", block: "unknown" };
  const parsed = ipaddr.process(address);
  if (parsed instanceof ipaddr.IPv4) {
    const name = parsed.toString();
    return { network: name, block: name };
  }
  const parts = parsed.parts.map((part) => part.toString(16));
  const prefix = (length: number) => `${parts.slice(0, length / 16).join(":")}::/${length}`;
  return { network: prefix(48), block: prefix(64) };
}

function rateLimited(rateLimit: RateLimit): ApiError {
  return new ApiError("rate_limited", { retry_after_seconds: resetSeconds(rateLimit) });
}
