import { and, isNull, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { OVERDUE_MAX_MS, PENDING_MAX } from "../contract/limits.ts";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, prepared, readAs, type Statements, transaction } from "../db/client.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { IS_CANCELLED_LAZILY, IS_PENDING, PENDING } from "../subscriptions/conditions.ts";
import { isWritable } from "../workspaces/moves.ts";
import type { WakeUp } from "./messages.ts";
import { IS_IN_LINE, LINES, subscriptionsWithPending } from "./schedule.ts";

/*
 * How pending deliveries end without a request.
 *
 * A subscription may have any number of them, so a call that ends it, or removes an event type from it, updates
 * its row alone: it increments the fencing counter `cancelEpoch`, and notes in `cancelledBefore` that deliveries
 * of earlier epochs are cancelled. From then on everybody reads them as cancelled. A dispatch then updates their
 * rows in bounded pieces, as long as `cancelling` says that there may be some.
 */

/**
 * The values that cancel all pending deliveries of a subscription whose event type is one of `types`, even if
 * the subscription becomes active again, or lists the type again. The caller wakes its dispatch if it is
 * `cancelling` then.
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
 * Ends subscriptions that are not deleted, which cancels their pending deliveries. Reads how many subscriptions
 * there were, and which to wake, so that the rows of these deliveries are updated.
 *
 * @param changed what else to set.
 */
export function endSubscriptions(
  which: SQL | undefined,
  changed: Partial<typeof subscriptions.$inferInsert> = {},
): Statements<{ count: number; wakeUps: WakeUp[] }> {
  const ended = qb
    .update(subscriptions)
    .set({ ...changed, ...cancelPending(), scheduledUntil: 0 })
    .where(and(which, isNull(subscriptions.deletedAt)))
    .returning({ subscriptionId: subscriptions.id, cancelling: subscriptions.cancelling });
  return readAs(ended, (rows) => ({ count: rows.length, wakeUps: wakeUpsToCancel(rows) }));
}

/** The wake-up messages for the subscriptions that have deliveries to cancel. */
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
          CROSS JOIN ${PENDING} ON ${IS_PENDING} AND ${IS_CANCELLED_LAZILY}
        WHERE ${deliveries.eventId} NOT IN (SELECT value FROM json_each(request.value, '$.inProgress'))
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
        AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_PENDING} AND ${IS_CANCELLED_LAZILY})`,
    ),
);

/**
 * Marks up to `CLEANUP_MAX` deliveries as cancelled, of the subscriptions that a round names, and clears the flag
 * of those with none left. Deliveries in progress are skipped: nothing is sent after its row says cancelled.
 *
 * @param values the holder of the round, its time in Unix milliseconds, and its requests as JSON.
 */
export function cancelDeliveries(values: {
  holder: string;
  now: number;
  requests: string;
}): Statements<unknown> {
  return transaction([markCancelled(values), finishCancelling(values)]);
}

/**
 * Exhausts up to `CLEANUP_MAX` deliveries of all workspaces that failed before and are due for a week: their
 * subscription failed whenever it could be sent to. An endpoint that is only slow loses nothing. What is leased
 * is left to a later sweep.
 */
export const exhaustExpired = prepared(
  qb
    .update(deliveries)
    .set({ state: "exhausted", settledAt: NOW })
    .where(
      sql`${KEY} IN (
        WITH RECURSIVE ${subscriptionsWithPending("")}
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM waiting CROSS JOIN ${subscriptions} ON ${subscriptions.id} = waiting.id
          CROSS JOIN ${LINES} ON line.value->>1 IN (2, 3)
          CROSS JOIN ${deliveries} ON ${IS_IN_LINE} AND ${deliveries.dueAt} <= ${NOW} - ${OVERDUE_MAX_MS} AND ${deliveries.attempts} > 0
        WHERE ${subscriptions.leasedUntil} <= ${NOW} AND NOT ${subscriptions.cancelling} AND ${IS_WRITABLE}
        LIMIT ${CLEANUP_MAX})`,
    ),
);

/** The `lastOutcome` of a delivery that was exhausted because too many were pending. */
const OVERFLOW = "overflow";
/** Subscriptions whose pending deliveries one sweep counts, and how many of one it exhausts at most. */
const OVERFLOW_CHECKED_MAX = 20;
const OVERFLOW_EXHAUSTED_MAX = 2 * CLEANUP_MAX;

const withPending = prepared(
  qb.all<{ id: string }>(sql`
    WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
    SELECT id FROM waiting WHERE id IS NOT NULL LIMIT ${OVERFLOW_CHECKED_MAX}`),
);

/** The next subscriptions that have pending deliveries; `after` is "" to start over. */
export function listWithPending(after: string): Statements<string[]> {
  return readAs(withPending({ after }), (rows) => rows.map(({ id }) => id));
}

const KEPT = sql`SELECT ${deliveries.eventId} FROM ${PENDING}
  WHERE ${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")} AND ${deliveries.state} = 'pending'`;

const exhaustOldest = prepared(
  qb
    .update(deliveries)
    .set({ state: "exhausted", settledAt: NOW, lastOutcome: OVERFLOW, lastStatus: null })
    .where(
      sql`${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")} AND ${deliveries.state} = 'pending'
        AND ${deliveries.eventId} IN (
          SELECT event_id FROM (${KEPT})
          ORDER BY event_id
          LIMIT max(0, min(${OVERFLOW_EXHAUSTED_MAX}, (SELECT count(*) FROM (${KEPT})) - ${PENDING_MAX})))
        AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${subscriptions.id} = ${deliveries.subscriptionId}
          AND ${subscriptions.leasedUntil} <= ${NOW} AND ${IS_WRITABLE})`,
    )
    .returning({ eventId: deliveries.eventId }),
);

const noteOverflow = prepared(
  qb
    .update(subscriptions)
    .set({ pendingExhaustedAt: sql`coalesce(${subscriptions.pendingExhaustedAt}, ${NOW})` })
    .where(
      sql`${subscriptions.id} = ${sql.placeholder("subscriptionId")} AND ${IS_WRITABLE}
        AND (SELECT count(*) FROM (${KEPT})) > ${PENDING_MAX} AND ${subscriptions.leasedUntil} <= ${NOW}`,
    ),
);

/**
 * Exhausts the oldest pending deliveries of a subscription beyond `PENDING_MAX`, in bounded pieces, and notes that
 * it did, for its administrators. Reads how many there were. Counts at most what a minute can add beyond the
 * bound; a subscription that is being sent to is left to a later sweep.
 */
export function exhaustOverflow(subscriptionId: string, now: number): Statements<number> {
  const values = { subscriptionId, now };
  const statements = transaction({ noted: noteOverflow(values), exhausted: exhaustOldest(values) });
  return readAs(statements, ({ exhausted }) => exhausted.length);
}

/** Deletes the rows of up to `CLEANUP_MAX` subscriptions that were deleted and have nothing pending any more. */
export const deleteEndedSubscriptions = prepared(
  qb.delete(subscriptions).where(
    sql`${subscriptions.id} IN (
        SELECT ${subscriptions.id} FROM ${subscriptions}
        WHERE ${subscriptions.deletedAt} IS NOT NULL AND ${IS_WRITABLE}
          AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_PENDING})
        LIMIT ${CLEANUP_MAX})`,
  ),
);
