import { and, isNull, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { EXPIRES_AFTER_MS, PENDING_MAX } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, combine, counted, prepared, readAs, type Statements } from "../db/client.ts";
import { deliveries, deliveryCounts, PRIORITY, subscriptions } from "../db/schema.ts";
import { isCancelledLazily } from "../db/states.ts";
import { isWritable } from "../workspaces/write-lock.ts";
import { CLAIM_MAX, claimOrder, IS_IN_LINE, LINES, subscriptionsWithPending } from "./due.ts";
import type { WakeUp } from "./messages.ts";

/*
 * How pending deliveries end without a request.
 *
 * A subscription may have any number of them. A call that ends the subscription, or removes an event type from it,
 * therefore updates only the subscription's row. It increments the fencing counter `cancelEpoch`, and stores in
 * `cancelledBefore` that deliveries of earlier epochs are cancelled. From then on, they are shown as cancelled
 * (`isCancelledLazily`) and not claimed. A dispatch updates their rows afterwards, in bounded pieces, while
 * `cancelling` is set.
 */

/** A table expression: deliveries, through the index of pending ones. Without the hint, SQLite reads all of them. */
const PENDING = sql`${deliveries} INDEXED BY deliveries_due_of_subscription`;
/** SQL condition: the delivery belongs to the subscription, and its row says `pending`. */
const IS_PENDING = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'`;

/**
 * Returns the values that cancel a subscription's pending deliveries of these event types. They stay cancelled if
 * the subscription becomes active again, or lists the type again. The caller sends a wake-up message if the updated
 * row has `cancelling` set.
 */
export function cancelPending(types: readonly WebhookEvent[] = WebhookEvent.options) {
  const epoch = sql`${subscriptions.cancelEpoch} + 1`;
  const entries = types.map((type) => sql`${type}, ${epoch}`);
  const isOfTypes = sql`${deliveries.type} IN (SELECT value FROM json_each(${JSON.stringify(types)}))`;
  return {
    cancelEpoch: epoch,
    cancelledBefore: sql`json_patch(${subscriptions.cancelledBefore}, json_object(${sql.join(entries, sql`, `)}))`,
    cancelling: sql`(${subscriptions.cancelling} OR EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_PENDING} AND ${isOfTypes}))`,
  };
}

/**
 * Returns the values that cancel all pending deliveries of a subscription that ends. The replays that took its slots
 * are cancelled, so a later replay need not wait for these. Slots of resends are taken for a minute at most.
 */
export function cancelAllPending() {
  return { ...cancelPending(), replaySlotsUntil: 0 };
}

/**
 * Ends subscriptions that are not deleted, which cancels their pending deliveries. Reads how many subscriptions
 * ended, and the wake-up messages after which the rows of these deliveries are updated.
 *
 * @param changed further columns to set.
 */
export function endSubscriptions(
  which: SQL | undefined,
  changed: Partial<typeof subscriptions.$inferInsert> = {},
): Statements<{ count: number; wakeUps: WakeUp[] }> {
  const ended = qb
    .update(subscriptions)
    .set({ ...changed, ...cancelAllPending() })
    .where(and(which, isNull(subscriptions.deletedAt)))
    .returning({ subscriptionId: subscriptions.id, cancelling: subscriptions.cancelling });
  return readAs(ended, (rows) => ({ count: rows.length, wakeUps: wakeUpsToCancel(rows) }));
}

/** Returns wake-up messages for the subscriptions that have deliveries to mark as cancelled. */
export function wakeUpsToCancel(
  rows: readonly { subscriptionId: string; cancelling: boolean }[],
): WakeUp[] {
  return rows
    .filter(({ cancelling }) => cancelling)
    .map(({ subscriptionId }) => ({ subscriptionId, queue: "slow" }));
}

const NOW = sql`${sql.placeholder("now")}`;
const KEY = sql`(${deliveries.subscriptionId}, ${deliveries.eventId})`;
const IS_WRITABLE = isWritable(subscriptions.workspaceId);

const markCancelled = prepared(
  qb
    .update(deliveries)
    .set({ state: "cancelled", settledAt: NOW })
    .where(
      sql`${KEY} IN (
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM json_each(${sql.placeholder("requests")}) AS request
          CROSS JOIN ${subscriptions} ON ${subscriptions.id} = request.value->>'subscriptionId'
            AND ${subscriptions.cancelling} AND ${IS_WRITABLE}
            AND (${subscriptions.leasedBy} = ${sql.placeholder("holder")} OR ${subscriptions.leasedUntil} <= ${NOW})
          CROSS JOIN ${PENDING} ON ${IS_PENDING} AND ${isCancelledLazily()}
        WHERE ${KEY} NOT IN (SELECT value->>0, value->>1 FROM json_each(${sql.placeholder("inProgress")}))
        LIMIT ${CLEANUP_MAX})`,
    ),
);

const finishCancelling = prepared(
  qb
    .update(subscriptions)
    .set({ cancelling: false })
    .from(sql`json_each(${sql.placeholder("requests")}) AS request`)
    .where(
      sql`${subscriptions.id} = request.value->>'subscriptionId' AND ${subscriptions.cancelling} AND ${IS_WRITABLE}
        AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_PENDING} AND ${isCancelledLazily()})`,
    ),
);

/**
 * Marks up to `CLEANUP_MAX` deliveries of a round's subscriptions as cancelled, and clears `cancelling` where none
 * is left. Deliveries in progress are skipped, so that no request is in flight for a row that says `cancelled`.
 *
 * @param values the holder of the round, its time in Unix milliseconds, and its requests and the deliveries in progress
 *   as JSON.
 */
export function cancelDeliveries(values: {
  holder: string;
  now: number;
  requests: string;
  inProgress: string;
}): Statements<unknown> {
  return combine([markCancelled(values), finishCancelling(values)]);
}

/**
 * Exhausts up to `CLEANUP_MAX` deliveries, of all workspaces, that have failed and have been due for a week. Deliveries
 * that were never tried stay pending, so an endpoint that is only slow loses nothing. Leased subscriptions are left to a
 * later run.
 */
export const exhaustExpired = prepared(
  qb
    .update(deliveries)
    .set({ state: "exhausted", settledAt: NOW })
    .where(
      sql`${KEY} IN (
        WITH RECURSIVE ${subscriptionsWithPending("")}
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM with_pending CROSS JOIN ${subscriptions} ON ${subscriptions.id} = with_pending.id
          CROSS JOIN ${LINES} ON line.value->>1 IN (${PRIORITY.inStreak}, ${PRIORITY.scheduled})
          CROSS JOIN ${deliveries} ON ${IS_IN_LINE} AND ${deliveries.dueAt} <= ${NOW} - ${EXPIRES_AFTER_MS} AND ${deliveries.attempts} > 0
        WHERE ${subscriptions.leasedUntil} <= ${NOW} AND NOT ${subscriptions.cancelling} AND ${IS_WRITABLE}
        LIMIT ${CLEANUP_MAX})`,
    ),
);

/** The `lastOutcome` of a delivery that was exhausted because too many were pending. */
const OVERFLOW = "overflow";
/** Maximum subscriptions whose pending deliveries one run of the scheduled job counts. */
const OVERFLOW_CHECKED_MAX = 20;
/** Maximum deliveries of one subscription that a run exhausts. */
const OVERFLOW_EXHAUSTED_MAX = 2 * CLEANUP_MAX;

const withPending = prepared(
  qb.all<{ id: string }>(sql`
    WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
    SELECT id FROM with_pending WHERE id IS NOT NULL LIMIT ${OVERFLOW_CHECKED_MAX}`),
);

/** Lists the next subscriptions that have pending deliveries; `after` is "" to start over. */
export function selectWithPending(after: string): Statements<string[]> {
  return readAs(withPending({ after }), (rows) => rows.map(({ id }) => id));
}

/**
 * The pending deliveries of a subscription that count for `PENDING_MAX`. What a replay has scheduled counts once it is
 * due: a replay may schedule all stored events, hours ahead, and says nothing about the endpoint until it sends them.
 */
const PENDING_OF_ONE = sql`SELECT ${deliveries.eventId}, ${deliveries.type}, ${deliveries.priority}, ${deliveries.dueAt} FROM ${PENDING}
  WHERE ${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")} AND ${deliveries.state} = 'pending'
    AND NOT (${deliveries.priority} = ${PRIORITY.scheduled} AND ${deliveries.attempts} = 0 AND ${deliveries.dueAt} > ${NOW})`;

/**
 * The first of these in the order in which rounds claim, if the subscription is leased. Unless requests are spaced, what is
 * being sent is probably among them.
 */
const PROBABLY_CLAIMED = sql`SELECT head.event_id FROM (${PENDING_OF_ONE}) AS head
  JOIN ${subscriptions} ON ${subscriptions.id} = ${sql.placeholder("subscriptionId")} AND ${subscriptions.leasedUntil} > ${NOW}
  ORDER BY ${claimOrder("head")} LIMIT ${CLAIM_MAX}`;

const exhaustOldest = prepared(
  qb
    .update(deliveries)
    .set({
      state: "exhausted",
      settledAt: NOW,
      lastOutcome: OVERFLOW,
      lastStatus: null,
      lastAt: NOW,
      lastDurationMs: null,
    })
    .where(
      sql`${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")} AND ${deliveries.state} = 'pending'
        AND ${deliveries.eventId} IN (
          SELECT event_id FROM (${PENDING_OF_ONE})
          WHERE event_id NOT IN (${PROBABLY_CLAIMED})
          ORDER BY event_id
          LIMIT max(0, min(${OVERFLOW_EXHAUSTED_MAX}, (SELECT count(*) FROM (${PENDING_OF_ONE})) - ${PENDING_MAX})))
        AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${subscriptions.id} = ${deliveries.subscriptionId}
          AND NOT ${subscriptions.cancelling} AND ${IS_WRITABLE})`,
    )
    .returning({ eventId: deliveries.eventId }),
);

const noteOverflow = prepared(
  qb
    .update(subscriptions)
    .set({ pendingExhaustedAt: sql`coalesce(${subscriptions.pendingExhaustedAt}, ${NOW})` })
    .where(
      sql`${subscriptions.id} = ${sql.placeholder("subscriptionId")} AND ${IS_WRITABLE}
        AND (SELECT count(*) FROM (${PENDING_OF_ONE})) > ${PENDING_MAX} AND NOT ${subscriptions.cancelling}`,
    ),
);

/**
 * Exhausts the oldest pending deliveries of a subscription beyond `PENDING_MAX`, in bounded pieces. Sets
 * `pendingExhaustedAt`, so that the administrators are notified. Reads how many it exhausted. The scheduled job calls
 * it for one subscription after another, so the rows to count exceed the bound by what is added between two calls. It
 * does not spare a leased subscription, except what is probably being sent: an endpoint that answers slowly is leased
 * nearly always.
 */
export function exhaustOverflow(subscriptionId: string, now: number): Statements<number> {
  const values = { subscriptionId, now };
  const statements = combine({ noted: noteOverflow(values), exhausted: exhaustOldest(values) });
  return readAs(statements, ({ exhausted }) => exhausted.length);
}

/** In the order of the index of deleted subscriptions, so that SQLite reads no others. */
function selectEnded(now: number): SQL {
  return sql`SELECT ${subscriptions.workspaceId}, ${subscriptions.id} FROM ${subscriptions}
    WHERE ${subscriptions.deletedAt} IS NOT NULL AND ${IS_WRITABLE}
      AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_PENDING})
      AND NOT EXISTS (SELECT 1 FROM json_each(${subscriptions.announced}) AS email
        WHERE email.value->>'announcedAt' > ${now - DAY_MS})
    ORDER BY ${subscriptions.workspaceId}, ${subscriptions.createdAt}, ${subscriptions.id} LIMIT ${CLEANUP_MAX}`;
}

/**
 * Deletes the rows of up to `CLEANUP_MAX` deleted subscriptions that have no pending deliveries left, with their daily
 * counts. Otherwise, a client that subscribes and unsubscribes all day could fill the database with counts. A row with
 * e-mails of the last day stays, because these count for the daily maximum of its workspace. Reads how many
 * subscriptions it has deleted.
 */
export function deleteEndedSubscriptions(now: number): Statements<number> {
  const ended = selectEnded(now);
  const statements = combine({
    counts: sql`DELETE FROM ${deliveryCounts}
      WHERE (${deliveryCounts.workspaceId}, ${deliveryCounts.subscriptionId}) IN (${ended})`,
    deleted: counted(sql`DELETE FROM ${subscriptions}
      WHERE (${subscriptions.workspaceId}, ${subscriptions.id}) IN (${ended})`),
  });
  return readAs(statements, ({ deleted }) => deleted);
}
