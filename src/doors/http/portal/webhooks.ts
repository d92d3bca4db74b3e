import type { Context } from "hono";
import { ApiError } from "../../../contract/errors.ts";
import { REDELIVERY_AHEAD_MS, SECRET_OVERLAP_SECONDS } from "../../../contract/limits.ts";
import { SecretRotation, TestRequest, WebhookEnabling } from "../../../contract/portal.ts";
import { wake } from "../../../delivery/wake.ts";
import { countDays } from "../../../model/days.ts";
import { listHealth } from "../../../model/health.ts";
import { TooManyRanges } from "../../../model/ranges.ts";
import { enableAgain } from "../../../model/redelivery.ts";
import { findSubscription } from "../../../model/subscriptions.ts";
import { rotateSecret, TooManySecrets } from "../../../webhooks/rotation.ts";
import { sendTestEvent } from "../../../webhooks/test-event.ts";
import { readJson } from "../body.ts";
import type { AppEnv } from "../context.ts";
import { parseAs } from "../invalid.ts";
import { subscribe, unsubscribe, WebhookCreation } from "../webhooks.ts";
import { toDay, toWebhook } from "./shapes.ts";

/** `GET /portal/api/webhooks` */
export async function listWebhooks(c: Context<AppEnv>): Promise<Response> {
  const views = await listHealth(c.get("db"), c.get("workspaceId"));
  return c.json({ data: views.map(toWebhook) });
}

/** `POST /portal/api/webhooks` */
export async function createWebhook(c: Context<AppEnv>): Promise<Response> {
  return c.json(await subscribe(c, parseAs(WebhookCreation, await readJson(c))), 201);
}

/** `GET /portal/api/webhooks/{id}` */
export async function showWebhook(c: Context<AppEnv>): Promise<Response> {
  const [db, id] = [c.get("db"), idOf(c)];
  const [[view], days] = await Promise.all([
    listHealth(db, c.get("workspaceId"), id),
    countDays(db, id, Date.now()),
  ]);
  if (!view) throw new ApiError("webhook_not_found");
  return c.json({ ...toWebhook(view), days: days.map(toDay) });
}

/** `DELETE /portal/api/webhooks/{id}` */
export async function removeWebhook(c: Context<AppEnv>): Promise<Response> {
  await unsubscribe(c, idOf(c));
  return c.body(null, 204);
}

/** `POST /portal/api/webhooks/{id}/enable` */
export async function enableWebhook(c: Context<AppEnv>): Promise<Response> {
  const { redeliver_since } = parseAs(WebhookEnabling, await readJson(c));
  const subscriptionId = idOf(c);
  const since = redeliver_since ?? null;
  const enabled = enableAgain(c.get("db"), subscriptionId, since, Date.now());
  const { count, more, lane } = await enabled.catch(refuseTooMany);
  if (since !== null)
    c.executionCtx.waitUntil(wake(c.env, c.get("home").database, [{ subscriptionId, lane }]));
  return c.json({ count, has_more: more });
}

/** Answers 429 if as many ranges as possible are being redelivered. @throws any other error. */
export function refuseTooMany(error: unknown): never {
  if (!(error instanceof TooManyRanges)) throw error;
  throw new ApiError("rate_limited", { retry_after_seconds: REDELIVERY_AHEAD_MS / 1000 });
}

/** `POST /portal/api/webhooks/{id}/secret` */
export async function rotateWebhookSecret(c: Context<AppEnv>): Promise<Response> {
  const { overlap_seconds } = parseAs(SecretRotation, await readJson(c));
  const overlap = overlap_seconds ?? SECRET_OVERLAP_SECONDS.default;
  const keys = c.env.WEBHOOK_ENCRYPTION_KEYS;
  try {
    const rotated = await rotateSecret(c.get("db"), keys, idOf(c), overlap, Date.now());
    return c.json({ secret: rotated.secret, overlap_ends_at: rotated.overlapEndsAt });
  } catch (error) {
    if (!(error instanceof TooManySecrets)) throw error;
    const parameter = "overlap_seconds";
    throw new ApiError("invalid_request", { parameter, reason: "out_of_range", max: 0 });
  }
}

/** `POST /portal/api/webhooks/{id}/test` */
export async function testWebhook(c: Context<AppEnv>): Promise<Response> {
  const { type } = parseAs(TestRequest, await readJson(c));
  const now = Date.now();
  const subscription = await findSubscription(c.get("db"), idOf(c), now);
  const result = await sendTestEvent(c.env, subscription, type, now);
  const { eventId: event_id, outcome, status, durationMs: duration_ms } = result;
  return c.json({ event_id, outcome, status, duration_ms });
}

/** The id of the subscription in the path; the gate has checked it. */
export function idOf(c: Context<AppEnv>): string {
  return c.req.param("id") ?? "";
}
