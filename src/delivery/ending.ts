import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { PENDING_MAX } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { qb } from "../db/builder.ts";
import { combine, counted, type Part, prepared, readAs, type Statements } from "../db/client.ts";
import { deliveries, PRIORITY, replays, subscriptions } from "../db/schema.ts";
import {
  isCancelledLazily,
  isUnsuccessful,
  isWritable,
  PENDING,
  UNSUCCESSFUL,
} from "../db/states.ts";
import { isInLine, LINES, RESEND, subscriptionsWithPending } from "./due.ts";
import type { WakeUp } from "./wake.ts";

/*
 * How pending deliveries end without a request: they are cancelled, or exhausted because too many are pending.
 *
 * A subscription may have any number of them. A call that ends the subscription, or removes an event type from it,
 * therefore updates only the subscription's row. It increments `epoch`, and stores in `cancelledBefore` that deliveries of
 * earlier epochs are cancelled. From then on, they are shown as cancelled (`isCancelledLazily`) and not claimed. The call
 * sets `hasToEnd`, and so does the scheduled job if more than `PENDING_MAX` are pending. The dispatch that leases the
 * subscription next ends the rows, in bounded pieces (`endDeliveries`). The lease keeps everybody else from sending them at
 * that moment.
 */

/** SQL condition: the delivery belongs to the subscription, and its row says `pending`. */
const IS_PENDING = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'`;

/**
 * Returns the values that cancel a subscription's pending deliveries, except those of the event types that are `kept`.
 * They stay cancelled if the subscription becomes active again, or lists the type again. The caller sends a wake-up
 * message if the updated row has `hasToEnd` set.
 */
export function cancelPending(kept: readonly WebhookEvent[] = []) {
  const epoch = sql`(${subscriptions.epoch} + 1)`;
  // After a rollback, a subscription may list a type that this code does not know.
  const types = sql`SELECT value FROM json_each(${JSON.stringify(WebhookEvent.options)})
    UNION SELECT value FROM json_each(${subscriptions.events})
    EXCEPT SELECT value FROM json_each(${JSON.stringify(kept)})`;
  return {
    epoch,
    cancelledBefore: sql`json_patch(${subscriptions.cancelledBefore}, (SELECT json_group_object(value, ${epoch}) FROM (${types})))`,
    hasToEnd: sql`(${subscriptions.hasToEnd} OR EXISTS (SELECT 1 FROM ${PENDING}
      WHERE ${IS_PENDING} AND ${deliveries.type} IN (${types})))`,
  };
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
    .set({ ...changed, ...cancelPending() })
    .where(and(which, isNull(subscriptions.deletedAt)))
    .returning({ subscriptionId: subscriptions.id, hasToEnd: subscriptions.hasToEnd });
  return readAs(ended, (rows) => ({ count: rows.length, wakeUps: wakeUpsToCancel(rows) }));
}

/** Returns wake-up messages for the subscriptions that have deliveries to mark as cancelled. */
export function wakeUpsToCancel(
  rows: readonly { subscriptionId: string; hasToEnd: boolean }[],
): WakeUp[] {
  return (
    rows
      .filter(({ hasToEnd }) => hasToEnd)
      // Any queue will do, and a message in this one delays no request.
      .map(({ subscriptionId }) => ({ subscriptionId, queue: "slow" }))
  );
}

const NOW = sql`${sql.placeholder("now")}`;
const IS_WRITABLE = isWritable(subscriptions.workspaceId);
/** SQL condition: the subscription that this claim leases, whose deliveries are to be ended. */
const IS_ENDING = sql`${subscriptions.id} = ${sql.placeholder("subscriptionId")}
  AND ${subscriptions.leasedBy} = ${sql.placeholder("token")} AND ${subscriptions.hasToEnd} AND ${IS_WRITABLE}`;
const IS_CANCELLED = sql`${IS_PENDING} AND ${isCancelledLazily()}`;
/**
 * The pending deliveries that count for `PENDING_MAX`. Those that a replay sends again do not count, because they say
 * nothing about the endpoint, and replays have a bound of their own.
 */
const IS_COUNTED = sql`${IS_PENDING} AND ${deliveries.priority} <> ${sql.raw(`${PRIORITY.replay}`)}`;

const markCancelled = prepared(
  qb
    .update(deliveries)
    .set({ state: "cancelled", settledAt: NOW })
    .where(
      sql`(${deliveries.subscriptionId}, ${deliveries.eventId}) IN (
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM ${subscriptions} CROSS JOIN ${PENDING} ON ${IS_CANCELLED}
        WHERE ${IS_ENDING} LIMIT ${CLEANUP_MAX})`,
    ),
);

/** The `lastOutcome` of a delivery that was exhausted because too many were pending. */
const OVERFLOW = "overflow";

/** A resend is not exhausted without an attempt, because a person waits for it. `RESENDS_PENDING_MAX` bounds them. */
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
      sql`(${deliveries.subscriptionId}, ${deliveries.eventId}) IN (
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM ${subscriptions} CROSS JOIN ${PENDING} ON ${IS_COUNTED} AND ${deliveries.priority} <> ${RESEND}
        WHERE ${IS_ENDING} AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_CANCELLED})
        ORDER BY ${deliveries.eventId}
        LIMIT max(0, min(${CLEANUP_MAX}, (SELECT count(*) FROM ${subscriptions} CROSS JOIN ${PENDING} ON ${IS_COUNTED}
          WHERE ${IS_ENDING}) - ${PENDING_MAX})))`,
    )
    .returning({ eventId: deliveries.eventId }),
);

const finishEnding = prepared(
  qb
    .update(subscriptions)
    .set({ hasToEnd: false })
    .where(
      sql`${IS_ENDING} AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_CANCELLED})
        AND NOT EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_COUNTED} LIMIT 1 OFFSET ${PENDING_MAX})`,
    )
    .returning({ subscriptionId: subscriptions.id }),
);

/**
 * Ends up to `CLEANUP_MAX` deliveries of a subscription that is leased: first those that are cancelled, then
 * the oldest ones beyond `PENDING_MAX`. Clears `hasToEnd` if none was left. Reads whether more are left, and how many
 * were exhausted.
 *
 * @param values `token`: the `leasedBy` of the lease; `now`: Unix milliseconds.
 */
export function endDeliveries(values: {
  subscriptionId: string;
  token: string;
  now: number;
}): Statements<{ hasMore: boolean; exhausted: number }> {
  const statements = combine({
    cancelled: markCancelled(values),
    exhausted: exhaustOldest(values),
    finished: finishEnding(values),
  });
  return readAs(statements, ({ exhausted, finished }) => ({
    hasMore: finished.length === 0,
    exhausted: exhausted.length,
  }));
}

/**
 * SQL expression: how many of the first few of these deliveries the endpoint has failed to accept since the last success.
 * An event that cannot be read and one that was never sent say nothing about it.
 */
function failedOf(those: SQL): SQL<number> {
  return sql`(SELECT count(*) FROM (
      SELECT ${deliveries.lastAt} AS last_at, ${deliveries.lastOutcome} AS last_outcome FROM ${those} LIMIT 20)
    WHERE last_at >= ${subscriptions.failingSince} AND last_outcome NOT IN ('unreadable', ${OVERFLOW}))`;
}

/**
 * SQL condition: at least two events have failed since the last success. However many have failed, it reads the twenty
 * retries of each event type that are due last, and the twenty newest exhausted events. These have usually failed last.
 * Events that cannot be read are not among these retries, because their long delays would hide the others.
 */
const TWO_EVENTS_FAILED = sql`(1 < (
  SELECT sum(${failedOf(sql`${deliveries} WHERE ${isInLine()} AND ${deliveries.lastOutcome} IS NOT 'unreadable'
    ORDER BY ${deliveries.dueAt} DESC`)})
  FROM ${LINES} WHERE line.value->>1 = ${PRIORITY.retry}
) + ${failedOf(sql`${UNSUCCESSFUL} WHERE ${deliveries.subscriptionId} = ${subscriptions.id}
    AND ${deliveries.state} = 'exhausted' AND ${isUnsuccessful()} ORDER BY ${deliveries.eventId} DESC`)})`;

/**
 * Disables the subscription if at least two events have failed since the last success, which cancels its pending
 * deliveries. `mustDisable` of policy.ts has decided the rest.
 */
export function disableFailing(which: SQL): Part {
  return qb
    .update(subscriptions)
    .set({ ...cancelPending(), disabledAt: NOW, disabledByFailures: true })
    .where(sql`${which} AND ${TWO_EVENTS_FAILED}`);
}

/** Maximum subscriptions whose pending deliveries one query counts. */
const COUNTED_AT_ONCE = 20;

const withPending = prepared(
  qb.all<{ subscriptionId: string; isOver: 0 | 1; slow: 0 | 1 }>(sql`
    WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
    SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow,
      EXISTS (SELECT 1 FROM ${PENDING} WHERE ${IS_COUNTED} LIMIT 1 OFFSET ${PENDING_MAX}) AS isOver
    FROM with_pending JOIN ${subscriptions} ON ${subscriptions.id} = with_pending.id
    LIMIT ${COUNTED_AT_ONCE}`),
);

/** Lists the next subscriptions that have pending deliveries, with whether they have more than `PENDING_MAX`. */
export function selectWithPending(after: string) {
  return withPending({ after });
}

/**
 * Notes that a subscription has too many pending deliveries, so that its next dispatch exhausts the oldest, and its
 * administrators are notified.
 */
export function noteOverflow(subscriptionId: string, now: number): Part {
  return qb
    .update(subscriptions)
    .set({
      hasToEnd: true,
      pendingExhaustedAt: sql`coalesce(${subscriptions.pendingExhaustedAt}, ${now})`,
    })
    .where(and(eq(subscriptions.id, subscriptionId), IS_WRITABLE));
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
 * Deletes the rows of up to `CLEANUP_MAX` deleted subscriptions that have no pending deliveries left, with their
 * replays. Otherwise, a client that subscribes and unsubscribes all day could fill the database. A row with
 * e-mails of the last day stays, because these count for the daily maximum of its workspace. Reads how many
 * subscriptions it has deleted.
 */
export function deleteEndedSubscriptions(now: number): Statements<number> {
  const ended = selectEnded(now);
  const statements = combine({
    replays: sql`DELETE FROM ${replays}
      WHERE (${replays.workspaceId}, ${replays.subscriptionId}) IN (${ended})`,
    deleted: counted(sql`DELETE FROM ${subscriptions}
      WHERE (${subscriptions.workspaceId}, ${subscriptions.id}) IN (${ended})`),
  });
  return readAs(statements, ({ deleted }) => deleted);
}
