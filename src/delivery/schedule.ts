import { and, eq, isNull, type Placeholder, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { SWEEP_MAX } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query, readAs, type Statements } from "../db/client.ts";
import { deliveries, PRIORITY, subscriptions } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";
import type { WakeUp } from "./messages.ts";
import { queueOf } from "./policy.ts";

/*
 * When pending deliveries are sent, in SQL. It applies the decisions of policy.ts that the rows store: the priority
 * and due time of a delivery, and `blockedUntil` and `earlyDueAt` of its subscription. Two forms of this must agree.
 * `dueUntil` and `isUnblocked` select the deliveries that may be sent now, and `ATTEMPT_DUE_AT` computes when each may
 * be sent.
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
const MANUAL = sql.raw(`${PRIORITY.manual}`);
const EARLY = sql.raw(`${PRIORITY.early}`);
/** A bound on due times that excludes none. */
const NO_BOUND = sql.raw(`${Number.MAX_SAFE_INTEGER}`);

/** A table expression: the lines that a subscription may have. */
export const LINES = sql.raw(`json_each('${LINES_JSON}') AS line`);

/** SQL condition: the delivery of the subscription is pending and stands in the line. */
export const IS_IN_LINE = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'
  AND ${deliveries.type} = line.value->>0 AND ${deliveries.priority} = line.value->>1`;

/**
 * SQL expression: deliveries in the line that are due by this time may be sent now, once nothing blocks them. When
 * `earlyDueAt` has come, all `early` ones may, whatever their due time.
 */
export function dueUntil(now: SQL): SQL {
  return sql`iif(line.value->>1 = ${EARLY} AND ${subscriptions.earlyDueAt} <= ${now}, ${NO_BOUND}, ${now})`;
}

/** SQL condition: deliveries of the line may be sent now. Manual sends are never blocked. */
export function isUnblocked(now: SQL): SQL {
  return sql`(line.value->>1 = ${MANUAL} OR ${subscriptions.blockedUntil} <= ${now})`;
}

/**
 * SQL expression: when a pending delivery may be sent, in Unix milliseconds. `earlyDueAt` may be long past, so
 * the time of the last attempt is a lower bound.
 */
export const ATTEMPT_DUE_AT = sql<number>`max(
  iif(${deliveries.priority} = ${MANUAL}, 0, ${subscriptions.blockedUntil}),
  iif(${deliveries.priority} = ${EARLY},
    max(coalesce(${deliveries.lastAt}, 0), min(${deliveries.dueAt}, ${subscriptions.earlyDueAt})),
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

/**
 * A table expression, `waiting`, of the subscriptions with pending deliveries. It jumps from one
 * subscription to the next in the index, however many pending deliveries each has.
 */
export function subscriptionsWithPending(after: string | Placeholder): SQL {
  // Raw SQL: Drizzle has no recursive queries.
  return sql`waiting (id) AS (
      SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > ${after}
      UNION ALL
      SELECT (SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > waiting.id)
      FROM waiting WHERE waiting.id IS NOT NULL)`;
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

/** Lists all subscriptions of a workspace that have a delivery to send now. */
export function selectDue(workspaceId: string, now: number): Statements<WakeUp[]> {
  return readAs(due({ workspaceId, now }), (found) =>
    found.map(({ subscriptionId, slow }) => ({ subscriptionId, queue: queueOf({ slow }) })),
  );
}

/** How long a delivery must have been due before the scheduled job wakes its subscription. */
export const SWEEP_GRACE_MS = MINUTE_MS;

const stuck = prepared(
  qb.all<{ subscriptionId: string; slow: 0 | 1 }>(sql`
  WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
  SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow
  FROM waiting JOIN ${subscriptions} ON ${subscriptions.id} = waiting.id
  WHERE ${subscriptions.leasedUntil} <= ${sql.placeholder("now")} AND ${isWritable(subscriptions.workspaceId)}
    AND (${sql.placeholder("isSweep")} OR coalesce(${subscriptions.lastAttempt}->>'at', 0) <= ${sql.placeholder("now")})
    AND (${subscriptions.cancelling} AND ${sql.placeholder("isSweep")}
      OR ${nextSendAt()} <= ${sql.placeholder("now")} - ${SWEEP_GRACE_MS})
  LIMIT ${SWEEP_MAX}`),
);

/**
 * Finds up to `SWEEP_MAX` subscriptions, of all workspaces, that no dispatch has handled: their deliveries are late
 * or, for the scheduled job only, cancelled without having been marked so.
 *
 * @param after where the last call stopped; "" to start over.
 */
export async function findStuck(
  db: Database,
  after: string,
  now: number,
  isSweep = false,
): Promise<{ wakeUps: WakeUp[]; after: string }> {
  const found = await query(db, stuck({ after, now, isSweep: isSweep ? 1 : 0 }));
  const last = found.length === SWEEP_MAX ? found.at(-1)?.subscriptionId : undefined;
  const wakeUps = found.map(({ subscriptionId, slow }) => ({
    subscriptionId,
    queue: queueOf({ slow: slow === 1 }),
  }));
  return { wakeUps, after: last ?? "" };
}
