import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { SWEEP_MAX } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query, readAs, type Statements } from "../db/client.ts";
import { deliveries, PRIORITY, subscriptions } from "../db/schema.ts";
import { isWritable } from "../workspaces/write-lock.ts";
import type { WakeUp } from "./messages.ts";
import { queueOf } from "./policy.ts";

/*
 * When pending deliveries are sent, in SQL, and whom to wake for them: the subscriptions of a workspace, at the end of a
 * transaction that made deliveries pending (`selectWakeUps`), and those of all workspaces whose deliveries are late,
 * because a queue has lost their message or their dispatch has died (`findLate`).
 *
 * The conditions apply the decisions of policy.ts that the rows store: the priority and due time of a delivery, and
 * `blockedUntil` and `streakRetryAt` of its subscription. Two forms of this must agree. `nextAttemptAt` computes when a
 * delivery may be sent. `IS_DUE` and `IS_UNBLOCKED` (round.ts) select the deliveries that may be sent now, through the
 * index. `claimOrder` sorts them.
 *
 * The pending deliveries of a subscription form a line for each event type and priority, in which they are in
 * the order of their due times. The index `deliveries_due_of_subscription` begins with the line, so reading its
 * first delivery takes one row, however long the line is.
 */

/**
 * Maximum deliveries that one round claims, over all subscriptions whose requests are not spaced: with the largest
 * events, 3 MB. For each of the others, it reads a few of which it claims one.
 */
export const CLAIM_MAX = 100;

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
 * SQL expressions: the order in which deliveries are claimed while requests are not spaced. Manual sends come first, and
 * event types that yield (`noteTypeOutcome` in policy.ts) last.
 *
 * @param head the alias of the deliveries, in a query with `subscriptions` and the placeholder `now`.
 */
export function claimOrder(head: string): SQL {
  const column = (name: string) => sql.raw(`${head}.${name}`);
  const yieldsUntil = sql`${subscriptions.rejections} -> ${column("type")} ->> 'yieldsUntil'`;
  return sql`${column("priority")} <> ${MANUAL},
    coalesce(${yieldsUntil} > ${sql.placeholder("now")}, 0),
    ${column("priority")}, ${column("due_at")}, ${column("event_id")}`;
}

/** SQL condition: requests to the subscription are spaced (`isSpaced`). The next may start once `blockedUntil` is past. */
export const IS_SPACED = sql`${subscriptions.blockedUntil} > 0`;

/**
 * SQL expression: when a pending delivery may be sent, in Unix milliseconds. `streakRetryAt` may lie before the last
 * attempt: for example, a manual send that fails does not move it. So `lastAt` is a lower bound. Without it, the delivery
 * would count as late (`findLate`) as soon as the attempt has failed.
 */
export function nextAttemptAt(): SQL<number> {
  return sql`max(
    iif(${deliveries.priority} = ${MANUAL}, 0, ${subscriptions.blockedUntil}),
    iif(${deliveries.priority} = ${IN_STREAK},
      max(coalesce(${deliveries.lastAt}, 0), min(${deliveries.dueAt}, ${subscriptions.streakRetryAt})),
      ${deliveries.dueAt}))`;
}

/**
 * SQL expression: when the subscription may be sent its next delivery; null if none is pending. Of each line, the
 * delivery that is due first suffices: besides its due time, `nextAttemptAt` depends on `blockedUntil` and
 * `streakRetryAt`, which are the same for the whole line. `lastAt` may differ within a line, but is past, so it decides
 * how late a delivery is, and not whether it may be sent.
 *
 * @param condition restricts the deliveries that count.
 */
export function nextSendAt(condition: SQL = sql`1`): SQL<number | null> {
  return sql`(SELECT min((SELECT ${nextAttemptAt()} FROM ${deliveries}
    WHERE ${IS_IN_LINE} AND ${condition} ORDER BY ${deliveries.dueAt} LIMIT 1)) FROM ${LINES})`;
}

/**
 * Selects a wake-up for each subscription of a workspace that has something to send now, or something to send later for
 * which no message is underway that arrives in time (messages.ts). The latter happens if an event is recorded while
 * requests are spaced, and what else is pending is due much later. It is woken now, too: its round notes when a delayed
 * message is to arrive, and its session sends that. A delivery that is cancelled, but whose row still
 * says `pending`, counts, because the dispatch marks it.
 *
 * A subscription that a dispatch leases needs none: the dispatch looks again when it releases the lease, and finds what
 * was committed until then.
 *
 * @param now Unix milliseconds.
 */
export function selectWakeUps(workspaceId: string, now: number): Statements<WakeUp[]> {
  return readAs(subscriptionsToWake({ workspaceId, now }), toWakeUps);
}

/** A row of a query for subscriptions to wake. */
interface ToWake {
  subscriptionId: string;
  slow: 0 | 1;
}

const toWakeUps = (rows: ToWake[]): WakeUp[] =>
  rows.map(({ subscriptionId, slow }) => ({
    subscriptionId,
    queue: queueOf({ slow: slow === 1 }),
  }));

const subscriptionsToWake = prepared(
  qb.all<ToWake>(sql`
    WITH free AS MATERIALIZED (
      SELECT ${subscriptions.id} AS id, ${subscriptions.slow} AS slow,
        ${subscriptions.notedWakeAt} AS noted_wake_at, ${nextSendAt()} AS next_at
      FROM ${subscriptions}
      WHERE ${subscriptions.workspaceId} = ${sql.placeholder("workspaceId")} AND ${subscriptions.deletedAt} IS NULL
        AND ${subscriptions.leasedUntil} <= ${sql.placeholder("now")})
    SELECT id AS subscriptionId, slow FROM free
    WHERE next_at <= ${sql.placeholder("now")}
      -- No message is underway that arrives in time (messages.ts).
      OR next_at IS NOT NULL AND (noted_wake_at <= ${sql.placeholder("now")} OR noted_wake_at > next_at)`),
);

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

/** How long a delivery must have been due before the scheduled job wakes its subscription. */
export const SWEEP_GRACE_MS = MINUTE_MS;

const late = prepared(
  qb.all<ToWake>(sql`
  WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
  SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow
  FROM with_pending JOIN ${subscriptions} ON ${subscriptions.id} = with_pending.id
  WHERE ${subscriptions.leasedUntil} <= ${sql.placeholder("asOf")} AND ${isWritable(subscriptions.workspaceId)}
    AND (${sql.placeholder("isSweep")} OR coalesce(${subscriptions.lastAttempt}->>'at', 0) <= ${sql.placeholder("asOf")})
    AND (${subscriptions.cancelling} AND ${sql.placeholder("isSweep")}
      OR ${nextSendAt()} <= ${sql.placeholder("asOf")} - ${SWEEP_GRACE_MS})
  LIMIT ${SWEEP_MAX}`),
);

/**
 * Finds up to `SWEEP_MAX` subscriptions, of all workspaces, that no dispatch has handled: their deliveries are late
 * or, for the scheduled job only, cancelled without having been marked so.
 *
 * @param after where the last call stopped; "" to start over.
 * @param asOf as of when they are late, in Unix milliseconds. The health check asks as of some time ago, and leaves out
 *   subscriptions with a later attempt.
 */
export async function findLate(
  db: Database,
  after: string,
  asOf: number,
  isSweep = false,
): Promise<{ wakeUps: WakeUp[]; after: string }> {
  const found = await query(db, late({ after, asOf, isSweep: isSweep ? 1 : 0 }));
  const last = found.length === SWEEP_MAX ? found.at(-1)?.subscriptionId : undefined;
  return { wakeUps: toWakeUps(found), after: last ?? "" };
}
