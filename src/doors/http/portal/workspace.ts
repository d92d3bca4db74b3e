import type { Context } from "hono";
import { WebhookEvent } from "../../../contract/enumerations.ts";
import { ApiError } from "../../../contract/errors.ts";
import { PAGE_LIMIT, SUBSCRIPTIONS_MAX } from "../../../contract/limits.ts";
import { isoTime } from "../../../contract/time.ts";
import { listStoredKeys, type StoredKey } from "../../../model/api-keys.ts";
import { isoTimeOrNull } from "../../../model/health.ts";
import type { AppEnv } from "../context.ts";

/** `GET /portal/api/workspace` */
export async function showWorkspace(c: Context<AppEnv>): Promise<Response> {
  const { endsAt, access } = c.get("portal");
  const found = await access;
  if (!found) throw new ApiError("invalid_api_key");
  const { DELIVERED_KEPT_DAYS, UNDELIVERED_KEPT_DAYS } = c.env;
  return c.json({
    id: c.get("workspaceId"),
    name: found.name,
    expires_at: isoTime(endsAt),
    webhooks_max: SUBSCRIPTIONS_MAX,
    // For as long, whatever became of an event.
    retention_days: Math.min(Number(DELIVERED_KEPT_DAYS), Number(UNDELIVERED_KEPT_DAYS)),
    events: WebhookEvent.options,
  });
}

/** `GET /portal/api/keys`: the newest 100. */
export async function listKeys(c: Context<AppEnv>): Promise<Response> {
  const request = { limit: PAGE_LIMIT.max, after: null };
  const { data } = await listStoredKeys(c.get("db"), c.get("workspaceId"), request);
  return c.json({ data: data.map((key) => toKey(c.env, key)) });
}

function toKey(env: Env, key: StoredKey) {
  return {
    id: key.id,
    created_at: isoTime(key.createdAt),
    last_used_at: isoTimeOrNull(key.lastUsedAt),
    revoked_at: isoTimeOrNull(key.revokedAt),
    expires_at: null,
    requests_per_window: key.requestsPerWindow ?? Number(env.QUOTA_REQUESTS),
    window_seconds: Number(env.QUOTA_WINDOW_SECONDS),
    hours: [],
  };
}
