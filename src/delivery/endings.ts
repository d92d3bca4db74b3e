import { and, isNull, type SQL, sql } from "drizzle-orm";
import { OVERDUE_MAX_MS } from "../contract/limits.ts";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, prepared, readAs, type Statements, transaction } from "../db/client.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { IS_PENDING, IS_VOID, PENDING } from "../subscriptions/conditions.ts";
import { isWritable } from "../workspaces/moves.ts";
import { IS_FREE, IS_IN_PROGRESS, IS_REQUESTED, type LeaseValues, REQUESTS } from "./lease.ts";
import { HAS_FAILED, IS_QUEUED, QUEUES } from "./order.ts";
import { subscriptionsWithPending, type Wake } from "./wake.ts";

/*
 * How pending deliveries end without a post. Whoever deletes or disables a subscription, or withdraws
 * access, makes them void; its dispatch then cancels them. The sweep exhausts what is overdue for too long.
 */

/**
 * What to set on a subscription so that its pending deliveries, of which there may be any number, are void
 * at once, even if it becomes active again. Whoever sets it wakes its dispatch, if it is `cancelling` then.
 */
export const CANCEL_PENDING = {
  cancellations: sql`${subscriptions.cancellations} + 1`,
  cancelling: sql`EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_PENDING})`,
  scheduledUntil: 0,
};

/**
 * Ends subscriptions that are not deleted: makes their pending deliveries void. Reads how many there were, and
 * which to wake, so that these deliveries are cancelled.
 *
 * @param changed what else to set.
 */
export function endSubscriptions(
  which: SQL | undefined,
  changed: Partial<typeof subscriptions.$inferInsert> = {},
): Statements<{ count: number; wakes: Wake[] }> {
  const { id, deletedAt, cancelling } = subscriptions;
  const ended = qb
    .update(subscriptions)
    .set({ ...changed, ...CANCEL_PENDING })
    .where(and(which, isNull(deletedAt)))
    .returning({ subscriptionId: id, cancelling });
  return readAs(ended, (rows) => ({
    count: rows.length,
    wakes: rows.flatMap(({ subscriptionId, cancelling }) =>
      cancelling ? [{ subscriptionId, lane: "slow" as const }] : [],
    ),
  }));
}

const NOW = sql`${sql.placeholder("now")}`;
const KEY = sql`(${deliveries.subscriptionId}, ${deliveries.eventId})`;
const IS_WRITABLE = isWritable(subscriptions.workspaceId);
const IS_CANCELLING = sql`${subscriptions.cancelling} AND ${IS_WRITABLE}`;

const cancellation = [
  qb
    .update(deliveries)
    .set({ state: "cancelled", settledAt: NOW })
    .where(
      sql`${KEY} IN (
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM ${REQUESTS} CROSS JOIN ${subscriptions} ON ${IS_REQUESTED} CROSS JOIN ${PENDING} ON ${IS_VOID}
        WHERE ${IS_CANCELLING} AND ${IS_FREE} AND NOT ${IS_IN_PROGRESS}
        LIMIT ${CLEANUP_MAX})`,
    ),
  qb
    .update(subscriptions)
    .set({ cancelling: false })
    .from(REQUESTS)
    .where(
      sql`${IS_REQUESTED} AND ${IS_CANCELLING} AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_VOID})`,
    ),
].map((statement) => prepared(statement));

/**
 * Cancels up to `CLEANUP_MAX` void deliveries of the subscriptions that are asked for, and clears the flag
 * of those with none left. Deliveries in progress are skipped: nothing is posted after it was cancelled.
 */
export function cancelVoid(values: LeaseValues): Statements<unknown> {
  return transaction(cancellation.map((statement) => statement(values)));
}

/**
 * Exhausts up to `CLEANUP_MAX` deliveries of all workspaces that failed before and are overdue for too long:
 * their subscription failed whenever it could be posted to. A receiver that is only slow loses nothing. What
 * is leased is left to a later sweep.
 */
export const exhaustOverdue = prepared(
  qb
    .update(deliveries)
    .set({ state: "exhausted", settledAt: NOW })
    .where(
      sql`${KEY} IN (
        WITH RECURSIVE ${subscriptionsWithPending("")}
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM waiting CROSS JOIN ${subscriptions} ON ${subscriptions.id} = waiting.id
          CROSS JOIN ${QUEUES} ON ${HAS_FAILED}
          CROSS JOIN ${deliveries} ON ${IS_QUEUED} AND ${deliveries.dueAt} <= ${NOW} - ${OVERDUE_MAX_MS} AND ${deliveries.attempts} > 0
        WHERE ${subscriptions.leasedUntil} <= ${NOW} AND NOT ${subscriptions.cancelling} AND ${IS_WRITABLE}
        LIMIT ${CLEANUP_MAX})`,
    ),
);

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
