import { sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { newEventId } from "../contract/ids.ts";
import { RESPONSES_PER_DAY } from "../contract/limits.ts";
import { dayOf, isoTime } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { combine, commit, type Database, prepared, type Statements } from "../db/client.ts";
import { attempts, deliveries, events, PRIORITY, subscriptions } from "../db/schema.ts";
import { countsToAdd, responsesOn, WITH_ADDED_COUNTS } from "../delivery/attempts.ts";
import { type Outcome, statusOf } from "../delivery/policy.ts";
import { createSender, type PreparedDelivery } from "../delivery/send.ts";
import type { WebhookDelivery } from "../events/bodies.ts";
import { HARD_DELIVERIES } from "../events/samples.ts";
import { log } from "../log.ts";
import type { KnownSubscription } from "./subscriptions.ts";

/** The result of a test event, which operations show as `TestResult`. */
interface SentTest {
  eventId: string;
  outcome: Outcome["kind"];
  status: number | null;
  durationMs: number;
}

/**
 * Sends a sample event once, signed like any other, and records it with its response. The header
 * `X-Service-Test: true` and the id of its record mark it as a test. It counts neither in the delivery
 * reconciliation nor for the subscription's health, and is never sent again.
 *
 * @throws Error if one of the subscription's secrets cannot be decrypted.
 */
export async function postTestEvent(
  env: Env,
  db: Database,
  subscription: KnownSubscription,
  type: WebhookEvent,
  now: number,
): Promise<SentTest> {
  const { id: subscriptionId, url } = subscription;
  const eventId = newEventId(now);
  const body = sampleBody(eventId, type, now);
  const event = { createdAt: now, storedBody: body, leadId: null, lead: null };
  const target = { ...subscription, subscriptionId };
  const row = {
    ...event,
    eventId,
    type,
    priority: PRIORITY.resend,
    stepsUsed: 0,
    attemptsMade: 0,
    firstAt: null,
    dueAt: now,
  };
  const sender = createSender(env, true);
  const [delivery] = sender.prepare([row], target);
  const sent = await sender.send(delivery as PreparedDelivery, target, now);
  const durationMs = Date.now() - now;
  const result = { eventId, outcome: sent.kind, status: statusOf(sent), durationMs };
  await commit(db, record(subscriptionId, type, body, now, result, await sent.storedResponse));
  const { eventId: _, ...logged } = result;
  log("test_event", { webhookId: subscriptionId, host: new URL(url).host, ...logged });
  return result;
}

/** Counts a stored response to a test event, unless an earlier try has recorded the event. */
const countResponse = prepared(
  qb
    .update(subscriptions)
    .set({ dailyCounts: WITH_ADDED_COUNTS })
    .where(
      sql`${subscriptions.id} = ${sql.placeholder("subscriptionId")} AND ${subscriptions.deletedAt} IS NULL
        AND NOT EXISTS (SELECT 1 FROM ${deliveries}
          WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = ${sql.placeholder("eventId")})`,
    ),
);

/**
 * Records a test event, unless its subscription was deleted in the meantime. Its response counts for
 * `RESPONSES_PER_DAY`, and is not stored beyond that.
 */
function record(
  subscriptionId: string,
  type: WebhookEvent,
  body: string,
  now: number,
  { eventId, outcome, status, durationMs }: SentTest,
  response: string | null = null,
): Statements<unknown> {
  const { id, workspaceId, deletedAt } = subscriptions;
  const once = sql`FROM ${subscriptions} WHERE ${id} = ${subscriptionId} AND ${deletedAt} IS NULL
    ON CONFLICT DO NOTHING`;
  const today = dayOf(now);
  const counted = countsToAdd({ [today]: { responses: 1 } }, now);
  return combine({
    counted: response === null ? undefined : countResponse({ subscriptionId, eventId, ...counted }),
    event: insertFrom(
      events,
      { id: eventId, workspaceId, type, body, owed: [subscriptionId], createdAt: now, test: true },
      once,
    ),
    delivery: insertFrom(
      deliveries,
      {
        subscriptionId,
        eventId,
        workspaceId,
        type,
        state: "test",
        attemptsMade: 1,
        dueAt: now,
        settledAt: now + durationMs,
        lastAt: now,
        lastOutcome: outcome,
        lastStatus: status,
        lastDurationMs: durationMs,
      },
      once,
    ),
    attempt: insertFrom(
      attempts,
      {
        subscriptionId,
        eventId,
        attempt: 1,
        at: now,
        outcome,
        status,
        durationMs,
        response: sql`iif(${responsesOn(today)} <= ${RESPONSES_PER_DAY}, unhex(${response}), NULL)`,
      },
      once,
    ),
  });
}

/** Makes a sample event of this type, which happened just now to a record that does not exist. */
function sampleBody(eventId: string, type: WebhookEvent, now: number): string {
  const samples: Record<WebhookEvent, WebhookDelivery> = HARD_DELIVERIES;
  const { data } = samples[type];
  const at = isoTime(now);
  const fields = Object.entries(data).map(([name, value]) => [
    name,
    name.endsWith("_at") ? at : value,
  ]);
  const id = data.id.replace(/_.*/, "_test");
  const record = { ...Object.fromEntries(fields), id };
  return JSON.stringify({ id: eventId, type, created_at: at, data: record });
}
