import { type SQL, sql } from "drizzle-orm";
import { OVERDUE_MAX_MS } from "../contract/limits.ts";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, inOrder, prepared, type Statements } from "../db/client.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";
import { IS_PENDING } from "./conditions.ts";
import { IS_FREE, IS_IN_PROGRESS, type LeaseValues } from "./dispatch/lease.ts";

/*
 * How pending deliveries end without a post: those of a subscription that is deleted, disabled or
 * without access are cancelled, and those overdue for too long are exhausted.
 */

/**
 * What to set on a subscription to cancel its pending deliveries, of which there may be any number:
 * they are void at once, as those owed before this cancellation, and are then cancelled in chunks, even if
 * it becomes active again.
 */
export const CANCEL_PENDING = {
  cancellations: sql`${subscriptions.cancellations} + 1`,
  cancelling: true,
  scheduledUntil: 0,
};

const NOW = sql`${sql.placeholder("now")}`;
/** SQL expression: a delivery due at this time, or earlier, is not posted any more. */
export const OVERDUE_SINCE = sql`${NOW} - ${OVERDUE_MAX_MS}`;
const IS_WRITABLE = isWritable(subscriptions.workspaceId);
const KEY = sql`(${deliveries.subscriptionId}, ${deliveries.eventId})`;
// `>= 0` is always true, and makes SQLite use the index of pending deliveries.
const IS_VOID = sql`${IS_PENDING} AND ${deliveries.dueAt} >= 0
  AND ${deliveries.cancellations} < ${subscriptions.cancellations}`;

/**
 * Cancels up to `CLEANUP_MAX` void deliveries of the subscriptions that match and that nobody but the
 * holder leases, and clears the flag of those with none left. Deliveries in progress are skipped, so
 * nothing is posted after it has been cancelled.
 */
export function cancelVoid(whose: SQL, values: LeaseValues): Statements<unknown> {
  const isMeant = sql`${whose} AND ${IS_WRITABLE}`;
  const statements = [
    qb
      .update(deliveries)
      .set({ state: "cancelled", settledAt: NOW })
      .where(
        sql`${KEY} IN (
          SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
          FROM ${subscriptions} CROSS JOIN ${deliveries} ON ${IS_VOID}
          WHERE ${isMeant} AND ${subscriptions.cancelling} AND ${IS_FREE} AND NOT ${IS_IN_PROGRESS}
          LIMIT ${CLEANUP_MAX})`,
      ),
    qb
      .update(subscriptions)
      .set({ cancelling: false })
      .where(
        sql`${isMeant} AND ${subscriptions.cancelling}
          AND NOT EXISTS (SELECT 1 FROM ${deliveries} WHERE ${IS_VOID})`,
      ),
    // A subscription that its client deleted is kept only until these are cancelled.
    qb
      .delete(subscriptions)
      .where(
        sql`${isMeant} AND ${subscriptions.deletedAt} IS NOT NULL AND NOT ${subscriptions.cancelling}`,
      ),
  ];
  return inOrder(statements.map((statement) => prepared(statement)(values)));
}

/** Exhausts deliveries overdue for too long: their subscription failed whenever it could be posted to. */
export const exhaustOverdue = exhausting(
  sql`json_each(${sql.placeholder("requests")}) AS r
      JOIN ${subscriptions} ON ${subscriptions.id} = r.value->>'subscriptionId'
      JOIN ${deliveries} ON ${IS_PENDING} AND ${deliveries.dueAt} <= ${OVERDUE_SINCE}
    WHERE ${IS_FREE} AND NOT ${IS_IN_PROGRESS} AND ${IS_WRITABLE}
    LIMIT ${CLEANUP_MAX}`,
);

function exhausting(source: SQL) {
  return prepared(
    qb
      .update(deliveries)
      .set({ state: "exhausted", settledAt: NOW })
      .where(
        sql`${KEY} IN (SELECT ${deliveries.subscriptionId}, ${deliveries.eventId} FROM ${source})`,
      ),
  );
}
