import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { qb } from "../db/builder.ts";
import { prepared, readAs, type Statements } from "../db/client.ts";
import { deliveries, PRIORITY, subscriptions } from "../db/schema.ts";
import type { WakeUp } from "./messages.ts";
import { queueOf } from "./policy.ts";

/*
 * When pending deliveries are sent, in SQL. It applies the decisions of policy.ts that the rows store: the priority
 * and due time of a delivery, and `blockedUntil` and `streakRetryAt` of its subscription. Two forms of this must agree.
 * `ATTEMPT_DUE_AT` computes when a delivery may be sent. `IS_DUE` and `IS_UNBLOCKED` (round.ts) select the deliveries
 * that may be sent now, through the index.
 *
 * The pending deliveries of a subscription form a line for each event type and priority, in which they are in
 * the order of their due times. The index `deliveries_due_of_subscription` begins with the line, so reading its
 * first delivery takes one row, however long the line is.
 */

const LINES_JSON = JSON.stringify(
  WebhookEvent.options.flatMap((type) =>
    Object.values(PRIORITY).map((priority) => [type, priority]),
  ),
);

// Constants rather than parameters: a statement may have at most 100 parameters.
export const MANUAL = sql.raw(`${PRIORITY.manual}`);
export const IN_STREAK = sql.raw(`${PRIORITY.inStreak}`);

/** An item of a FROM clause, `line`: the lines that a subscription may have, each as `[type, priority]`. */
export const LINES = sql.raw(`json_each('${LINES_JSON}') AS line`);

/** SQL condition: the delivery of the subscription is pending and stands in the `line`. */
export const IS_IN_LINE = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'
  AND ${deliveries.type} = line.value->>0 AND ${deliveries.priority} = line.value->>1`;

/**
 * SQL expression: when a pending delivery may be sent, in Unix milliseconds. `streakRetryAt` may be long past, so
 * the time of the last attempt is a lower bound.
 */
export const ATTEMPT_DUE_AT = sql<number>`max(
  iif(${deliveries.priority} = ${MANUAL}, 0, ${subscriptions.blockedUntil}),
  iif(${deliveries.priority} = ${IN_STREAK},
    max(coalesce(${deliveries.lastAt}, 0), min(${deliveries.dueAt}, ${subscriptions.streakRetryAt})),
    ${deliveries.dueAt}))`;

/**
 * SQL expression: when the subscription may be sent its next delivery; null if none is pending.
 *
 * @param condition restricts the deliveries that count.
 */
export function nextSendAt(condition: SQL = sql`1`): SQL<number | null> {
  return sql`(SELECT min((SELECT ${ATTEMPT_DUE_AT} FROM ${deliveries}
    WHERE ${IS_IN_LINE} AND ${condition} ORDER BY ${deliveries.dueAt} LIMIT 1)) FROM ${LINES})`;
}

const due = prepared(
  qb
    .select({ subscriptionId: subscriptions.id, slow: subscriptions.slow })
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        sql`${nextSendAt()} <= ${sql.placeholder("now")}`,
      ),
    ),
);

/** Lists all subscriptions of a workspace that have a delivery to send now, even if a dispatch leases them, or has still to
 * mark it as cancelled. */
export function selectDue(workspaceId: string, now: number): Statements<WakeUp[]> {
  return readAs(due({ workspaceId, now }), (found) =>
    found.map(({ subscriptionId, slow }) => ({ subscriptionId, queue: queueOf({ slow }) })),
  );
}
