import type { Context } from "hono";
import { API_KEYS_LIST } from "../../../contract/cursor.ts";
import { WebhookEvent } from "../../../contract/enumerations.ts";
import { ApiError } from "../../../contract/errors.ts";
import { PORTAL_KEYS, STANDING_MAX_AGE_MS } from "../../../contract/limits.ts";
import { isoTime } from "../../../contract/time.ts";
import { openDirectory } from "../../../db/databases.ts";
import { callObject } from "../../../gate/call.ts";
import { signPortalToken } from "../../../gate/portal-token.ts";
import { type HourUsage, lastHours } from "../../../gate/usage.ts";
import { logError } from "../../../log.ts";
import { listStoredKeys, type StoredKey } from "../../../model/api-keys.ts";
import { isoTimeOrNull } from "../../../model/health.ts";
import type { PortalAccess } from "../../../model/workspaces.ts";
import type { AppEnv } from "../context.ts";
import { parseAs, queryOf } from "../invalid.ts";
import { PageQuery, toPage, toPageRequest } from "../paging.ts";

const DAY_MS = 86_400_000;

/**
 * `POST /portal/api/session`: exchanges a link's token for that of a session. Nothing is stored: a link
 * can be exchanged again until it expires, for a session that ends at the same time.
 */
export async function openSession(c: Context<AppEnv>): Promise<Response> {
  const { endsAt, found } = await opened(c);
  const workspaceId = c.get("workspaceId");
  const grant = { workspaceId, endsAt };
  const token = await signPortalToken(c.env.PORTAL_SIGNING_KEYS, "session", grant);
  return c.json({ token, workspace: { id: workspaceId, name: found.name } });
}

/** `GET /portal/api/workspace` */
export async function showWorkspace(c: Context<AppEnv>): Promise<Response> {
  const { endsAt, found } = await opened(c);
  const { DELIVERED_KEPT_DAYS, UNDELIVERED_KEPT_DAYS } = c.env;
  return c.json({
    id: c.get("workspaceId"),
    name: found.name,
    expires_at: isoTime(endsAt),
    webhooks_max: found.webhooksMax,
    // The shorter of the two, which holds whether or not an event was delivered.
    retention_days: Math.min(Number(DELIVERED_KEPT_DAYS), Number(UNDELIVERED_KEPT_DAYS)),
    events: WebhookEvent.options,
  });
}

/** What the token grants, and the workspace it opens. */
async function opened(c: Context<AppEnv>): Promise<{ endsAt: number; found: PortalAccess }> {
  const { endsAt, access } = c.get("portal");
  const found = await access;
  if (!found) throw new ApiError("invalid_api_key");
  return { endsAt, found };
}

/** `GET /portal/api/keys`: the keys newest first, in pages of one size. */
export async function listKeys(c: Context<AppEnv>): Promise<Response> {
  const { after } = toPageRequest(API_KEYS_LIST, parseAs(PageQuery, queryOf(c)));
  const request = { limit: PORTAL_KEYS, after };
  const found = await listStoredKeys(openDirectory(c.env), c.get("workspaceId"), request);
  const now = Date.now();
  const keys = found.items.map(async (key) =>
    toKey(c.env, key, await usageOf(c.env, key, now), now),
  );
  return c.json(toPage(API_KEYS_LIST, { items: await Promise.all(keys), next: found.next }));
}

/**
 * The usage that a key's gate has counted; null if the gate fails, so that the other keys can still
 * be shown. The gate of a key that has not been used recently is not called, because the call would
 * create it.
 */
async function usageOf(
  env: Env,
  { id, keyHash, lastUsedAt }: StoredKey,
  now: number,
): Promise<HourUsage[] | null> {
  const isRecent = lastUsedAt !== null && lastUsedAt >= now - DAY_MS - STANDING_MAX_AGE_MS;
  if (!isRecent) return [];
  try {
    return await callObject(env.KEY_GATE, keyHash, (gate) => gate.usage());
  } catch (error) {
    logError("usage_unknown", error, { key: id });
    return null;
  }
}

function toKey(env: Env, key: StoredKey, usage: HourUsage[] | null, now: number) {
  return {
    id: key.id,
    created_at: isoTime(key.createdAt),
    last_used_at: isoTimeOrNull(key.lastUsedAt),
    revoked_at: isoTimeOrNull(key.revokedAt),
    expires_at: isoTimeOrNull(key.expiresAt),
    requests_per_window: key.requestsPerWindow ?? Number(env.QUOTA_REQUESTS),
    window_seconds: Number(env.QUOTA_WINDOW_SECONDS),
    hours:
      usage &&
      lastHours(usage, now).map(({ startsAt, requests, refused }) => ({
        hour: isoTime(startsAt).replace(".000", ""),
        requests,
        refused,
      })),
  };
}
