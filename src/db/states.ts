import { type Column, type SQL, sql } from "drizzle-orm";
import type { DeliveryState } from "../contract/enumerations.ts";
import { deliveries, PRIORITY, subscriptions, workspaces } from "./schema.ts";

/* The states that follow from several columns, as SQL. Each rule stands here once, for all statements that need it. */

/** SQL condition: the subscription is active. It is neither disabled nor deleted, and its workspace has access. */
export function isActive(): SQL {
  return sql`(${subscriptions.disabledAt} IS NULL AND ${subscriptions.deletedAt} IS NULL
    AND EXISTS (SELECT 1 FROM ${workspaces}
      WHERE ${workspaces.id} = ${subscriptions.workspaceId} AND ${workspaces.accessGranted}))`;
}

/** SQL condition: the subscription lists this event type. */
export function listsType(type: Column | string): SQL {
  return sql`EXISTS (SELECT 1 FROM json_each(${subscriptions.events}) AS listed WHERE listed.value = ${type})`;
}

/**
 * SQL condition: the delivery was cancelled with its subscription or event type, although its row still says
 * `pending`. A dispatch updates the row later (delivery/ending.ts).
 */
export function isCancelledLazily(): SQL {
  return sql`(${deliveries.state} = 'pending' AND ${precedesCancellation()})`;
}

/** SQL condition: the subscription, or the event type, was cancelled after the delivery was made pending. */
export function precedesCancellation(): SQL {
  return sql`${deliveries.pendingSinceEpoch} < coalesce(${subscriptions.cancelledBefore} ->> ${deliveries.type}, 0)`;
}

/** SQL expression: the state of the subscription's delivery. */
export function deliveryState(): SQL<DeliveryState> {
  return sql`iif(${isCancelledLazily()}, 'cancelled', ${deliveries.state})`;
}

/** A table expression: deliveries through the index of pending ones. Without the hint, SQLite reads all of them. */
export const PENDING = sql`${deliveries} INDEXED BY deliveries_due_of_subscription`;

/** A table expression: deliveries through the index of those that failed or were cancelled. */
export const UNSUCCESSFUL = sql`${deliveries} INDEXED BY deliveries_unsuccessful`;

/**
 * SQL condition: the index has the delivery. SQLite uses it only for queries that contain this condition, with constants
 * as in the index.
 */
export function isUnsuccessful(): SQL {
  return sql`(${deliveries.state} IN ('exhausted', 'cancelled')
    OR (${deliveries.state} = 'pending' AND ${deliveries.priority} = ${sql.raw(`${PRIORITY.retry}`)}))`;
}

/**
 * SQL condition: the workspace lives here and is not being moved. A statement that writes rows of several
 * workspaces must include it, because one locked workspace aborts the whole statement.
 */
export function isWritable(workspaceId: Column): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${workspaces} AS locked
    WHERE locked.id = ${workspaceId} AND locked.write_lock IS NOT NULL)`;
}

/**
 * SQL condition: the workspace is writable, or is draining before a move. Only the outcomes of requests in flight are still
 * recorded then, because the move waits for them.
 */
export function isWritableOrDraining(workspaceId: Column): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${workspaces} AS locked
    WHERE locked.id = ${workspaceId} AND locked.write_lock IN ('locked', 'arriving'))`;
}
