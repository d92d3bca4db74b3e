import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { DELIVERIES_LIST } from "../../../contract/cursor.ts";
import { WebhookEvent } from "../../../contract/enumerations.ts";
import { ApiError } from "../../../contract/errors.ts";
import { RedeliveryRequest } from "../../../contract/portal.ts";
import { wake } from "../../../delivery/wake.ts";
import { findDelivery, listDeliveries } from "../../../model/history.ts";
import { ALL_STATES } from "../../../model/owing.ts";
import { redeliverAgain } from "../../../model/redelivery.ts";
import { readJson } from "../body.ts";
import type { AppEnv } from "../context.ts";
import { parseAs, queryOf } from "../invalid.ts";
import { PageQuery, toPage, toPageRequest } from "../paging.ts";
import { toAttempt, toDelivery } from "./shapes.ts";
import { idOf, refuseTooMany } from "./webhooks.ts";

/** A parameter with an allowed value; null if absent or empty. */
function choice<E extends z.ZodEnum>(values: E) {
  const given = z.preprocess((value) => (value === "" ? undefined : value), values.optional());
  return given.transform((value) => value ?? null);
}

const DeliveriesQuery = z.object({
  state: choice(z.enum(["pending", "delivered", "exhausted", "cancelled"])),
  type: choice(WebhookEvent),
});

/** `GET /portal/api/webhooks/{id}/deliveries` */
export async function listWebhookDeliveries(c: Context<AppEnv>): Promise<Response> {
  const query = queryOf(c);
  const request = toPageRequest(DELIVERIES_LIST, parseAs(PageQuery, query));
  const filter = parseAs(DeliveriesQuery, query);
  const { items, next } = await listDeliveries(c.get("db"), idOf(c), filter, request);
  return c.json(toPage(DELIVERIES_LIST, { items: items.map(toDelivery), next }));
}

/** `GET /portal/api/webhooks/{id}/deliveries/{event_id}` */
export async function showDelivery(c: Context<AppEnv>): Promise<Response> {
  const eventId = c.req.param("event_id") ?? "";
  const keys = c.env.WEBHOOK_ENCRYPTION_KEYS;
  const found = await findDelivery(c.get("db"), keys, idOf(c), eventId);
  const { failedAttempts, body, ...view } = found;
  return c.json({ ...toDelivery(view), failed_attempts: failedAttempts.map(toAttempt), body });
}

/** `POST /portal/api/webhooks/{id}/redeliver` */
export async function redeliver(c: Context<AppEnv>): Promise<Response> {
  const { event_ids, since, until, states } = parseAs(RedeliveryRequest, await readJson(c));
  const now = Date.now();
  const subscriptionId = idOf(c);
  const range = { since: since ?? now, until: until ?? null, states: states ?? ALL_STATES };
  const redelivered = redeliverAgain(c.get("db"), subscriptionId, event_ids ?? range, now);
  const owed = await redelivered.catch(refuseTooMany);
  // A disabled subscription is owed nothing.
  if (!owed) throw new ApiError("invalid_request", { parameter: "id" });
  const { count, more, lane } = owed;
  c.executionCtx.waitUntil(wake(c.env, c.get("home").database, [{ subscriptionId, lane }]));
  return c.json({ count, has_more: more });
}
