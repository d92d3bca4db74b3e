import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { deliveries, PRIORITY, subscriptions } from "../db/schema.ts";

/*
 * When pending deliveries may be sent, in SQL. Two columns decide: the due time of the delivery, and the circuit of its
 * event type at the subscription, which holds everything but resends. policy.ts decides about both.
 *
 * The pending deliveries of a subscription form a line for each event type and priority, in the order of their due
 * times. The index `deliveries_due_of_subscription` begins with the line, so reading its first delivery takes one row,
 * however long the line is.
 */

const LINES_JSON = JSON.stringify(
  WebhookEvent.options.flatMap((type) =>
    Object.values(PRIORITY).map((priority) => [type, priority]),
  ),
);

/** An item of a FROM clause, `line`: the lines that a subscription may have, each as `[type, priority]`. */
export const LINES = sql.raw(`json_each('${LINES_JSON}') AS line`);

// Constants rather than parameters: a statement may have at most 100 parameters.
export const RESEND = sql.raw(`${PRIORITY.resend}`);

/** SQL condition: the delivery of the subscription is pending and stands in the `line`. */
export function isInLine(): SQL {
  return sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'
    AND ${deliveries.type} = line.value->>0 AND ${deliveries.priority} = line.value->>1`;
}

/** SQL expression: when the open circuit of an event type may be probed next, in Unix milliseconds; 0 if it is closed. */
export function probeAt(type: SQL): SQL<number> {
  return sql`coalesce(${subscriptions.circuits} -> ${type} ->> 'probeAt', 0)`;
}

/** SQL expression: when a pending delivery may be sent, in Unix milliseconds. */
export function nextAttemptAt(): SQL<number> {
  return sql`max(${deliveries.dueAt},
    iif(${deliveries.priority} = ${RESEND}, 0, ${probeAt(sql`${deliveries.type}`)}))`;
}

/**
 * SQL expression: when the subscription may be sent its next delivery; null if none is pending. Of each line, the
 * delivery that is due first suffices, because one circuit holds the whole line.
 */
export function nextSendAt(): SQL<number | null> {
  return sql`(SELECT min((SELECT ${nextAttemptAt()} FROM ${deliveries}
    WHERE ${isInLine()} ORDER BY ${deliveries.dueAt} LIMIT 1)) FROM ${LINES})`;
}

/**
 * A common table expression, `with_pending`, for `WITH RECURSIVE`: the ids of the subscriptions with pending
 * deliveries. It jumps from one subscription to the next in the index, however many pending deliveries each has.
 */
export function subscriptionsWithPending(after: string | Placeholder): SQL {
  // Raw SQL: Drizzle has no recursive queries.
  return sql`with_pending (id) AS (
      SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > ${after}
      UNION ALL
      SELECT (SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > with_pending.id)
      FROM with_pending WHERE with_pending.id IS NOT NULL)`;
}
