import type { Context, Next } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../../contract/errors.ts";
import { openDatabase } from "../../db/client.ts";
import { bindingOf, DIRECTORY } from "../../db/databases.ts";
import { findHome, openMovingSession } from "../../db/homes.ts";
import { EarlySession, isOlder, type ReadPoint } from "../../db/session.ts";
import { addressAlias, addressName } from "../../gate/address-gate.ts";
import { hashApiKey, isApiKey } from "../../gate/api-key.ts";
import { callObject } from "../../gate/call.ts";
import type { RefusedElsewhere } from "../../gate/key-gate.ts";
import { blockedAddresses, type KeyRefusal, knownKeys, usedUpKeys } from "../../gate/memory.ts";
import { type Figures, resetSeconds } from "../../gate/window.ts";
import { logError } from "../../log.ts";
import type { AppEnv } from "./context.ts";

/**
 * The gate of everything under `/v1`: admits a request whose key is good and has quota left, and
 * tells the handlers its workspace. A read with a key that was admitted here before starts while the
 * gate is still deciding, and what it found is dropped when the gate refuses.
 *
 * @throws ApiError `invalid_api_key`, `workspace_access_denied` or `rate_limited`, in this order.
 */
export const gate = createMiddleware<AppEnv>(async (c, next) => {
  const key = parseBearer(c.req.header("Authorization"));
  if (key === null || !(await isApiKey(c.env.API_KEY_CHECKSUM_KEYS, key)))
    throw await countFailure(c);
  const keyHash = await hashApiKey(key);
  refuseUsedUp(c, keyHash);
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  await (isRead ? read(c, next, keyHash) : write(c, next, keyHash));
});

/** Reads on a replica that is new enough for what the key's gate hands out. */
async function read(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  const known = knownKeys.get(keyHash);
  const admission = admit(c, keyHash);
  // Looked at below, when the handler is done.
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
    if (refusal === c.error) return;
    // Else it would hand down its headers.
    c.res = undefined;
    throw refusal;
  }
}

/** Writes, once admitted, and sees to it that the key reads its own writes wherever it reads next. */
async function write(c: Context<AppEnv>, next: Next, keyHash: string): Promise<void> {
  await admit(c, keyHash);
  const find = () => findHome(c.env, c.get("workspaceId"));
  const session = openMovingSession(c.env, c.get("home"), find);
  c.set("home", session);
  c.set("db", openDatabase(session));
  await next();
  const bookmark = session.getBookmark();
  const refused = c.res.status >= 400 && c.res.status < 500;
  if (bookmark === null || refused) return;
  remember(c, keyHash, bookmark);
  try {
    const { database } = session;
    await callObject(c.env.KEY_GATE, keyHash, (gate) => gate.advance(bookmark, database));
  } catch (error) {
    // It is written all the same.
    logError("bookmark_lost", error, { requestId: c.get("requestId") });
  }
}

/**
 * Asks the key's gate.
 *
 * @returns the database of the workspace, and how new what is read there must be.
 * @throws ApiError when it refuses.
 */
async function admit(c: Context<AppEnv>, keyHash: string): Promise<ReadPoint> {
  const askedAt = Date.now();
  const refused = takeRefused(keyHash);
  const admission = await callObject(c.env.KEY_GATE, keyHash, (gate) =>
    gate.admit(keyHash, undefined, refused),
  );
  if (admission.verdict === "unknown_key") {
    knownKeys.delete(keyHash);
    throw await countFailure(c);
  }
  if (admission.verdict === "admitted") {
    identify(c, admission);
    const { database = DIRECTORY, bookmark } = admission;
    c.set("home", { database });
    return pointOf(c, { database, bookmark });
  }
  const { verdict, keyId, workspaceId, figures, expiresAt } = admission;
  const refusal = { verdict, keyId, workspaceId, figures, expiresAt };
  if (figures.remaining === 0) usedUpKeys.note(keyHash, refusal, askedAt, expiresAt ?? undefined);
  throw refuse(c, keyHash, refusal);
}

function pointOf(
  c: Context<AppEnv>,
  { database, bookmark }: { database: string; bookmark: string | null },
): ReadPoint {
  return { binding: bindingOf(c.env, database), bookmark };
}

/** The requests that were answered 429 here since the gate was asked last: it counts them, too. */
function takeRefused(keyHash: string): RefusedElsewhere | undefined {
  const known = usedUpKeys.take(keyHash);
  if (!known?.count || known.refusal.verdict !== "quota_exceeded") return undefined;
  return { count: known.count, at: known.at };
}

/** @throws ApiError for a key whose quota is known to be used up. */
function refuseUsedUp(c: Context<AppEnv>, keyHash: string): void {
  const refusal = usedUpKeys.find(keyHash, Date.now());
  if (refusal) throw refuse(c, keyHash, refusal);
}

/** How a refusal is answered. */
function refuse(c: Context<AppEnv>, keyHash: string, refusal: KeyRefusal): ApiError {
  identify(c, refusal);
  if (refusal.verdict === "access_denied") {
    knownKeys.delete(keyHash);
    return new ApiError("workspace_access_denied");
  }
  return rateLimited(refusal.figures);
}

/** Tells the handlers, the headers and the log whose request it is. */
function identify(
  c: Context<AppEnv>,
  { keyId, workspaceId, figures }: Omit<KeyRefusal, "verdict" | "expiresAt">,
): void {
  c.set("keyId", keyId);
  c.set("workspaceId", workspaceId);
  c.set("figures", figures);
}

function remember(c: Context<AppEnv>, keyHash: string, bookmark: string | null): void {
  const { database } = c.get("home");
  const known = knownKeys.get(keyHash);
  const seen = known?.database === database ? known.bookmark : null;
  knownKeys.set(keyHash, {
    keyId: c.get("keyId"),
    workspaceId: c.get("workspaceId"),
    database,
    bookmark: isOlder(seen, bookmark) ? bookmark : seen,
  });
}

/** The key of an `Authorization` header (RFC 6750; the scheme in any case); `null` without one. */
export function parseBearer(header: string | undefined): string | null {
  return /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? null;
}

/** Counts a failed authentication against the address, and says how it is answered. */
async function countFailure(c: Context<AppEnv>): Promise<ApiError> {
  const name = addressOf(c);
  c.set("address", await addressAlias(c.env.API_KEY_CHECKSUM_KEYS, name));
  const askedAt = Date.now();
  const known = blockedAddresses.find(name, askedAt);
  const { blocked, figures } = known
    ? { blocked: true, ...known }
    : await callObject(c.env.ADDRESS_GATE, name, (gate) => gate.fail());
  c.set("figures", figures);
  if (!blocked) return new ApiError("invalid_api_key");
  if (!known) blockedAddresses.note(name, { figures }, askedAt);
  return rateLimited(figures);
}

/** What is left of the failure window of the address that a request comes from. */
export function peekFailures(c: Context<AppEnv>): Promise<Figures> {
  return callObject(c.env.ADDRESS_GATE, addressOf(c), (gate) => gate.peek());
}

function addressOf(c: Context<AppEnv>): string {
  return addressName(c.req.header("CF-Connecting-IP"));
}

function rateLimited(figures: Figures): ApiError {
  return new ApiError("rate_limited", { retry_after_seconds: resetSeconds(figures) });
}
