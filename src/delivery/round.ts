import { sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { commaList, fromJson, mapColumns, qb, toTexts } from "../db/builder.ts";
import {
  combine,
  commit,
  type Database,
  prepared,
  retryTransient,
  withoutRetries,
} from "../db/client.ts";
import {
  attempts as attemptsTable,
  deliveries,
  deliveryCounts,
  events,
  type LastAttempt,
  PRIORITY,
  subscriptions,
} from "../db/schema.ts";
import { isActive } from "../db/states.ts";
import type { WorkspaceKey } from "../encryption/personal-data.ts";
import { earlierSecretsAt } from "../endpoints/secrets.ts";
import { BODY, type BodyRow } from "../events/bodies.ts";
import { sealedDataKeyOf } from "../workspaces/data-keys.ts";
import { isUnlocked, isWritable } from "../workspaces/write-lock.ts";
import { addCounts, countAttempts, insertAttempts } from "./attempts.ts";
import { cancelAllPending, cancelDeliveries } from "./cancellation.ts";
import { claimOrder, IN_STREAK, IS_IN_LINE, IS_SPACED, LINES, MANUAL, nextSendAt } from "./due.ts";
import {
  PACE_COLUMNS,
  type Pace,
  type PendingDelivery,
  type paceColumns,
  type QueueName,
  type TypeOutcomes,
} from "./policy.ts";

/*
 * A round: one transaction in which delivery sessions record the outcomes of their requests, store the pace of
 * their subscriptions, release these or extend their leases, and read what to send next.
 *
 * A lease is a dispatch's exclusive right to send to a subscription: `leasedBy` and `leasedUntil`. To claim is to
 * lease the subscription and to read its due deliveries, whose rows do not change. A round that finds something to
 * claim begins or extends the lease; other rounds do not. The lease ends when the dispatch releases it, or after
 * `LEASE_MS` if the process has died. A release sets `leasedUntil` to 0 and keeps `leasedBy`, so outcomes are recorded
 * until another dispatch leases.
 *
 * The release and the next claim are in one transaction, so no delivery is missed between them. A round that releases a
 * lease sees every delivery that was committed before: it claims it, or its session sends the next wake-up message. For a
 * delivery that is committed later, a wake-up message is sent, unless one is underway that arrives in time. It finds the
 * subscription free.
 *
 * D1 may commit a transaction and lose the reply, so a round is safe to repeat. Each write of an outcome, a pace or a
 * lease checks that no other dispatch has leased the subscription since, and an outcome is only recorded for a delivery
 * that does not have it yet.
 */

/** How long a lease lasts after the last round that claimed. A request only starts if its round is requested in time. */
export const LEASE_MS = POST_TIMEOUT_MS + 10_000;

/**
 * A session's change to a delivery: its new state after an attempt, or without one, if a
 * manual send could not be attempted. Times are Unix milliseconds.
 */
export interface DeliveryChange {
  subscriptionId: string;
  eventId: string;
  type: WebhookEvent;
  /** The delivery as it was claimed. If it was rescheduled since then, it may stay pending. */
  claimed: Pick<
    PendingDelivery,
    "attempts" | "attemptsMade" | "priority" | "dueAt" | "scheduledAt"
  >;
  state: "delivered" | "pending" | "exhausted" | "cancelled";
  attempts: number;
  priority: number;
  /** When it is due again; null if it is not pending any more. */
  dueAt: number | null;
  /** When it was delivered, exhausted or cancelled; null if it is pending. */
  settledAt: number | null;
  /** Null if no attempt was made. */
  outcome: string | null;
  status: number | null;
  startedAt: number;
  durationMs: number;
  /** The stored part of the response, encrypted, in hexadecimal. */
  response: string | null;
}

/** A session's change to the subscription that it leases. */
export interface SubscriptionChange extends ReturnType<typeof paceColumns>, TypeOutcomes {
  subscriptionId: string;
  /** The `cancelEpoch` and URL that the pace belongs to. If either has changed since, the pace is not stored. */
  cancelEpoch: number;
  url: string;
  paceChanged: boolean;
  /** Whether to disable it, because it has failed for too long. */
  disable: boolean;
  /** The last attempt of the session, successful or not; null if there was none. */
  last: LastAttempt | null;
  /** Whether to release the lease; what is claimed in the same round leases the subscription again. */
  release: boolean;
}

/** A session's request for a round. */
export interface RoundRequest {
  subscriptionId: string;
  /** The `wakeAt` of the wake-up message that has arrived; 0 if it had none. */
  arrivedWakeAt: number;
  /** Whether to claim more. */
  claim: boolean;
  /** Events that are claimed and have no outcome yet: they are neither claimed again nor cancelled. */
  inProgress: string[];
  changes: DeliveryChange[];
  subscriptionChange: SubscriptionChange | null;
  /** Whether there are deliveries to mark as cancelled. */
  cancel: boolean;
}

/** The part of a round that its requests share. */
export interface RoundTerms {
  /** Identifies the dispatch that leases. */
  holder: string;
  now: number;
  /** When the leases of this round end, unless they are extended or released. */
  until: number;
  /** The queue whose subscriptions are leased. */
  queue: QueueName;
  /** Maximum number of deliveries to claim per subscription. */
  limit: number;
}

/** A subscription after a round; times are Unix milliseconds. */
export interface RoundSubscription extends Pace, TypeOutcomes, WorkspaceKey {
  subscriptionId: string;
  url: string;
  events: (typeof subscriptions.$inferSelect)["events"];
  sealedSecret: string;
  sealedHeaders: string | null;
  /** Previous secrets, sealed, that still sign during their grace period. */
  earlierSecrets: string[];
  /** Events in progress that must not be sent, because they were erased. */
  erasedInProgress: string[];
  cancelEpoch: number;
  /** Whether there are deliveries to mark as cancelled, and this database may be written. */
  cancelling: boolean;
  /** Whether it may be sent to: it is active, and its workspace is not about to change its database. */
  maySend: boolean;
  /** When this dispatch's lease ends; 0 if it has no lease, or the workspace is locked for a move. */
  leasedUntil: number;
  /** When another dispatch's lease ends; null if no other dispatch has one. */
  leasedElsewhereUntil: number | null;
  /** When it may be sent its next delivery that is not in progress; null if there is none. */
  nextSendAt: number | null;
  /** How many responses to its failed attempts were stored today. */
  storedResponses: number;
}

/** A delivery that is due, with the row that its body is made from. */
export interface DueDelivery extends PendingDelivery, BodyRow {
  subscriptionId: string;
}

/** An `arrivedWakeAt` for which each noted wake-up message counts as arrived, so that a new one is noted. */
const ALL_ARRIVED = Number.MAX_SAFE_INTEGER;

/**
 * Makes a round. After a transient error, it makes the round again, because the first try may have been committed or
 * not. If its reply was lost, the messages that it noted are not sent, so the next try notes them again (`ALL_ARRIVED`).
 *
 * @param onTry called before each try with the number of its statements.
 */
export function makeRound(
  db: Database,
  requests: readonly RoundRequest[],
  terms: RoundTerms,
  onTry: (statements: number) => void,
) {
  let isRepeated = false;
  return retryTransient(() => {
    const round = buildRound(requests, terms, isRepeated);
    isRepeated = true;
    onTry(round.queries.length);
    return commit(withoutRetries(db), round);
  });
}

/** The statements of a round. */
function buildRound(requests: readonly RoundRequest[], terms: RoundTerms, isRepeated: boolean) {
  const { holder, now, until, limit } = terms;
  const deliveryChanges = requests.flatMap(({ changes }) => changes);
  const subscriptionChanges = requests.flatMap(
    ({ subscriptionChange }) => subscriptionChange ?? [],
  );
  const isClaiming = requests.some(({ claim }) => claim);
  const requestRows = requests.map(({ subscriptionId, arrivedWakeAt, claim }) => ({
    subscriptionId,
    arrivedWakeAt: isRepeated ? ALL_ARRIVED : arrivedWakeAt,
    claim,
  }));
  const inProgress = requests.flatMap(({ subscriptionId, inProgress }) =>
    inProgress.map((eventId) => [subscriptionId, eventId]),
  );
  const values = {
    holder,
    now,
    until,
    limit,
    requests: JSON.stringify(requestRows),
    inProgress: JSON.stringify(inProgress),
    deliveryChanges: JSON.stringify(deliveryChanges),
    subscriptionChanges: JSON.stringify(subscriptionChanges),
    isSlow: terms.queue === "slow" ? 1 : 0,
  };
  const attempts = deliveryChanges.filter(
    (change): change is DeliveryChange & { outcome: string } => change.outcome !== null,
  );
  return combine({
    // The attempts are stored before their deliveries are updated: afterwards, neither this statement nor a second
    // try of the transaction finds these deliveries open.
    stored: attempts.length > 0 ? storeAttempts(values) : undefined,
    counts:
      attempts.length > 0
        ? addAttemptCounts({ ...values, counts: JSON.stringify(countAttempts(attempts)) })
        : undefined,
    changed: deliveryChanges.length > 0 ? changeDeliveries(values) : undefined,
    cancelled: requests.some(({ cancel }) => cancel) ? cancelDeliveries(values) : undefined,
    paces: subscriptionChanges.length > 0 ? changeSubscriptions(values) : undefined,
    disabled: subscriptionChanges.some(({ disable }) => disable) ? disable(values) : undefined,
    leased: isClaiming ? lease(values) : undefined,
    noted: noteWakeUps(values),
    subscriptions: selectSubscriptions(values),
    due: isClaiming ? selectDue(values) : undefined,
    heads: isClaiming ? selectHeads(values) : undefined,
  });
}

const HOLDER = sql.placeholder("holder");
/** A bound on due times that excludes none. */
const NO_BOUND = sql.raw(`${Number.MAX_SAFE_INTEGER}`);
const NOW = sql`${sql.placeholder("now")}`;
const REQUESTS = sql`json_each(${sql.placeholder("requests")}) AS request`;
const DELIVERY_CHANGES = sql`json_each(${sql.placeholder("deliveryChanges")}) AS change`;
const SUBSCRIPTION_CHANGES = sql`json_each(${sql.placeholder("subscriptionChanges")}) AS change`;

const IS_REQUESTED = sql`${subscriptions.id} = request.value->>'subscriptionId'`;
/** The workspace is not locked for a move. A write to a locked one would fail the whole transaction. */
const IS_WRITABLE = isWritable(subscriptions.workspaceId);
/** Outcomes are still recorded, and leases released, while the workspace drains, because the move waits for them. */
const IS_UNLOCKED = isUnlocked(subscriptions.workspaceId);
/** The subscription is free, or this dispatch leases it. */
const IS_NOT_LEASED_ELSEWHERE = sql`(${subscriptions.leasedBy} = ${HOLDER} OR ${subscriptions.leasedUntil} <= ${NOW})`;

/**
 * The change of the delivery is not recorded yet, and no other dispatch has leased its subscription. A recorded change
 * shows in the row: an attempt has raised `attemptsMade`, and a change without an attempt has set `dueAt`, or the state.
 * `attempts` does not show it: an early attempt leaves it as it is. It is compared as well, because a resend or a replay
 * begins a cancelled delivery anew, with 0, even if its row still says `pending`. The outcome of a retry from before then
 * is dropped, and the delivery is sent again. That of a first attempt counts.
 */
const IS_UNRECORDED = sql`${deliveries.subscriptionId} = change.value->>'subscriptionId' AND ${deliveries.eventId} = change.value->>'eventId'
  AND ${deliveries.state} = 'pending'
  AND ${deliveries.attempts} = change.value->>'$.claimed.attempts'
  AND ${deliveries.attemptsMade} = change.value->>'$.claimed.attemptsMade'
  AND (change.value->>'outcome' IS NOT NULL OR ${deliveries.dueAt} IS NOT change.value->>'dueAt')
  AND EXISTS (SELECT 1 FROM ${subscriptions}
    WHERE ${subscriptions.id} = ${deliveries.subscriptionId} AND ${subscriptions.leasedBy} = ${HOLDER} AND ${IS_UNLOCKED})`;

/**
 * The delivery was rescheduled since it was claimed, by a resend, a replay or another URL, and must be sent again: after a
 * resend in any case, and otherwise unless the attempt has succeeded.
 */
const IS_RESCHEDULED = sql`((${deliveries.priority}, ${deliveries.dueAt}, ${deliveries.scheduledAt})
    IS NOT (change.value->>'$.claimed.priority', change.value->>'$.claimed.dueAt', change.value->>'$.claimed.scheduledAt')
  AND (${deliveries.priority} = ${PRIORITY.manual} OR change.value->>'state' <> 'delivered'))`;

const changeField = fromJson("change");

// A success is stored in the row of its delivery alone. If the delivery is sent again, its next attempt overwrites the
// row, so the success is stored as an attempt, too.
const storeAttempts = prepared(
  insertAttempts(
    {
      at: sql`change.value->>'startedAt'`,
      ...mapColumns(attemptsTable, ["outcome", "status", "durationMs", "response"], changeField),
    },
    sql`FROM ${DELIVERY_CHANGES} JOIN ${deliveries} ON ${IS_UNRECORDED}
      WHERE change.value->>'outcome' IS NOT NULL AND (change.value->>'state' <> 'delivered' OR ${IS_RESCHEDULED})`,
  ),
);

// A second try of the transaction finds none of the deliveries open, so it counts nothing twice.
const addAttemptCounts = prepared(
  addCounts(sql`EXISTS (SELECT 1 FROM ${DELIVERY_CHANGES} JOIN ${deliveries} ON ${IS_UNRECORDED}
    WHERE change.value->>'subscriptionId' = added.value->>'subscriptionId')`),
);

// A delivery that was rescheduled during the attempt stays pending and is sent again. If that fails, it returns to the
// schedule that this attempt has set (`scheduledAt`). If this attempt was the last one, or a success, the next one counts
// in the schedule.
const changeDeliveries = prepared(
  qb
    .update(deliveries)
    .set({
      state: sql`iif(${IS_RESCHEDULED}, 'pending', change.value->>'state')`,
      priority: sql`iif(${IS_RESCHEDULED}, ${deliveries.priority}, change.value->>'priority')`,
      dueAt: sql`iif(${IS_RESCHEDULED}, ${deliveries.dueAt}, coalesce(change.value->>'dueAt', ${deliveries.dueAt}))`,
      scheduledAt: sql`CASE WHEN change.value->>'outcome' IS NULL THEN ${deliveries.scheduledAt}
        WHEN ${IS_RESCHEDULED} THEN change.value->>'dueAt' END`,
      settledAt: sql`iif(${IS_RESCHEDULED}, NULL, change.value->>'settledAt')`,
      deliveredEarlier: sql`(${deliveries.deliveredEarlier} OR ${IS_RESCHEDULED} AND change.value->>'state' = 'delivered')`,
      attempts: sql`change.value->>'attempts'`,
      attemptsMade: sql`${deliveries.attemptsMade} + (change.value->>'outcome' IS NOT NULL)`,
      lastOutcome: sql`coalesce(change.value->>'outcome', ${deliveries.lastOutcome})`,
      lastStatus: sql`iif(change.value->>'outcome' IS NULL, ${deliveries.lastStatus}, change.value->>'status')`,
      lastAt: sql`iif(change.value->>'outcome' IS NULL, ${deliveries.lastAt}, change.value->>'startedAt')`,
      lastDurationMs: sql`iif(change.value->>'outcome' IS NULL, ${deliveries.lastDurationMs}, change.value->>'durationMs')`,
    })
    .from(DELIVERY_CHANGES)
    .where(IS_UNRECORDED),
);

// The fencing counter `cancelEpoch` also protects a subscription that was disabled or deleted since, because both
// increment it. So if the reply is lost, a second try finds another epoch, and does not disable a subscription that was
// enabled again. In the same way, no round restores a wait that a replay has ended.
const IS_CURRENT_PACE = sql`(change.value->>'paceChanged' AND ${subscriptions.cancelEpoch} = change.value->>'cancelEpoch'
  AND ${subscriptions.url} = change.value->>'url')`;
const IS_LEASED_BY_US = sql`${subscriptions.id} = change.value->>'subscriptionId' AND ${subscriptions.leasedBy} = ${HOLDER} AND ${IS_UNLOCKED}`;

// The same success comes again with a second try, and with a later round of a session that has made no other attempt. It
// must not clear an overflow (`pendingExhaustedAt`) that the scheduled job has noted since it was stored.
const IS_NEW_SUCCESS = sql`(change.value->>'$.last.status' BETWEEN 200 AND 299
  AND ${subscriptions.lastAttempt} IS NOT change.value->>'last')`;

const changeSubscriptions = prepared(
  qb
    .update(subscriptions)
    .set({
      ...mapColumns(
        subscriptions,
        [...PACE_COLUMNS, "rejections", "acceptedTypes"],
        (column, name) => sql`iif(${IS_CURRENT_PACE}, ${changeField(column, name)}, ${column})`,
      ),
      // A success clears it even if it leaves the pace as it was.
      pendingExhaustedAt: sql`iif(${IS_NEW_SUCCESS}, NULL, ${subscriptions.pendingExhaustedAt})`,
      lastAttempt: sql`coalesce(change.value->>'last', ${subscriptions.lastAttempt})`,
      leasedUntil: sql`iif(change.value->>'release', 0, ${subscriptions.leasedUntil})`,
    })
    .from(SUBSCRIPTION_CHANGES)
    // A first try may have stored a change that only releases the lease. Storing it again would cost a written row.
    .where(
      sql`${IS_LEASED_BY_US} AND (change.value->>'paceChanged' OR ${subscriptions.leasedUntil} <> 0)`,
    ),
);

const disable = prepared(
  qb
    .update(subscriptions)
    .set({ ...cancelAllPending(), disabledAt: NOW, disabledByFailures: true })
    .from(SUBSCRIPTION_CHANGES)
    .where(sql`${IS_LEASED_BY_US} AND ${IS_CURRENT_PACE} AND change.value->>'disable'`),
);

const PROGRESS = sql`json_each(${sql.placeholder("inProgress")}) AS progress`;
// SQLite reads this list once, as all requests share it. After NOT IN, it would read it for every delivery.
const IS_NOT_IN_PROGRESS = sql`iif((${deliveries.subscriptionId}, ${deliveries.eventId}) IN (
  SELECT progress.value->>0, progress.value->>1 FROM ${PROGRESS}), 0, 1)`;
/**
 * The delivery belongs to the subscription and the line, is due, and is not in progress. Once `streakRetryAt` has come,
 * deliveries that failed only in the streak are due whatever their due time.
 */
const IS_DUE = sql`${IS_IN_LINE} AND ${IS_NOT_IN_PROGRESS} AND ${deliveries.dueAt} <=
  iif(line.value->>1 = ${IN_STREAK} AND ${subscriptions.streakRetryAt} <= ${NOW}, ${NO_BOUND}, ${NOW})`;
/** Deliveries of the line may be sent now. Manual sends are never blocked. */
const IS_UNBLOCKED = sql`(line.value->>1 = ${MANUAL} OR ${subscriptions.blockedUntil} <= ${NOW})`;

/**
 * The round may claim for the subscription, if something is due. In the statements after `lease`, a subscription that
 * meets this and has something due is leased by this dispatch. While cancelled rows remain to be marked, nothing is
 * claimed, because these rows still say `pending`.
 */
const MAY_CLAIM = sql`${IS_REQUESTED} AND request.value->>'claim' AND ${IS_NOT_LEASED_ELSEWHERE} AND ${IS_WRITABLE} AND ${isActive()}
  AND ${subscriptions.slow} = ${sql.placeholder("isSlow")} AND NOT ${subscriptions.cancelling}`;

/** Wake-up messages that were noted for this time or an earlier one have arrived. */
const ARRIVED_AT = sql`max(${NOW}, request.value->>'arrivedWakeAt')`;

/**
 * Leases the subscriptions that the round may claim for and that have something due. Clears the note of a wake-up
 * message that has arrived. Otherwise, a later dispatch whose clock is behind would still expect it.
 */
const lease = prepared(
  qb
    .update(subscriptions)
    .set({
      leasedBy: sql`${HOLDER}`,
      leasedUntil: sql`${sql.placeholder("until")}`,
      notedWakeAt: sql`iif(${subscriptions.notedWakeAt} <= ${ARRIVED_AT}, 0, ${subscriptions.notedWakeAt})`,
    })
    .from(REQUESTS)
    .where(
      sql`${MAY_CLAIM} AND EXISTS (SELECT 1 FROM ${LINES} WHERE ${IS_UNBLOCKED}
        AND EXISTS (SELECT 1 FROM ${deliveries} WHERE ${IS_DUE}))`,
    ),
);

const NEXT_SEND_AT = nextSendAt(IS_NOT_IN_PROGRESS);

/**
 * Finds the subscriptions that no dispatch leases and for which no message is underway that arrives in time, and notes
 * when their next message is to arrive (step 1 of messages.ts). While rows of cancelled deliveries remain, an immediate
 * message follows in any case. Once none remain, a subscription that is not active has nothing pending.
 */
const noteWakeUps = prepared(
  qb.all<{ subscriptionId: string; wakeAt: number }>(sql`
    WITH free AS MATERIALIZED (
      SELECT ${subscriptions.id} AS id, ${ARRIVED_AT} AS arrived_at,
        ${NEXT_SEND_AT} AS next_at
      FROM ${REQUESTS} JOIN ${subscriptions} ON ${IS_REQUESTED}
      WHERE ${subscriptions.leasedUntil} <= ${NOW} AND ${IS_WRITABLE} AND NOT ${subscriptions.cancelling})
    UPDATE ${subscriptions} SET noted_wake_at = free.next_at FROM free
    WHERE ${subscriptions.id} = free.id AND free.next_at > ${NOW}
      -- The noted message has arrived, because it was noted for this time or an earlier one, or it arrives too late.
      AND (${subscriptions.notedWakeAt} <= free.arrived_at OR ${subscriptions.notedWakeAt} > free.next_at)
    RETURNING ${subscriptions.id} AS subscriptionId, ${subscriptions.notedWakeAt} AS wakeAt`),
);

/** Reads the requested subscriptions that exist, as they are at the end of the round. */
const selectSubscriptions = prepared(
  qb
    .select({
      subscriptionId: subscriptions.id,
      workspaceId: subscriptions.workspaceId,
      sealedDataKey: sealedDataKeyOf(subscriptions.workspaceId),
      url: subscriptions.url,
      events: subscriptions.events,
      sealedSecret: subscriptions.sealedSecret,
      sealedHeaders: subscriptions.sealedHeaders,
      earlierSecrets: earlierSecretsAt(sql.placeholder("now")),
      concurrency: subscriptions.concurrency,
      slow: subscriptions.slow,
      streak: subscriptions.streak,
      blockedUntil: subscriptions.blockedUntil,
      streakRetryAt: subscriptions.streakRetryAt,
      rejections: subscriptions.rejections,
      acceptedTypes: subscriptions.acceptedTypes,
      cancelEpoch: subscriptions.cancelEpoch,
      cancelling: sql`(${subscriptions.cancelling} AND ${IS_WRITABLE})`.mapWith(Boolean),
      maySend: sql`(${isActive()} AND ${IS_WRITABLE})`.mapWith(Boolean),
      leasedUntil: sql<number>`iif(${subscriptions.leasedBy} = ${HOLDER} AND ${IS_UNLOCKED}, ${subscriptions.leasedUntil}, 0)`,
      leasedElsewhereUntil: sql<
        number | null
      >`CASE WHEN NOT ${IS_NOT_LEASED_ELSEWHERE} THEN ${subscriptions.leasedUntil} END`,
      erasedInProgress: sql`(SELECT json_group_array(progress.value->>1) FROM ${PROGRESS}
        WHERE progress.value->>0 = ${subscriptions.id} AND NOT EXISTS (SELECT 1 FROM ${deliveries} JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}
          WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = progress.value->>1))`.mapWith(
        toTexts,
      ),
      nextSendAt: NEXT_SEND_AT,
      storedResponses: sql<number>`coalesce((SELECT ${deliveryCounts.counts}->>'responses' FROM ${deliveryCounts}
        WHERE ${deliveryCounts.workspaceId} = ${subscriptions.workspaceId}
          AND ${deliveryCounts.subscriptionId} = ${subscriptions.id} AND ${deliveryCounts.day} = ${NOW} - ${NOW} % ${DAY_MS}), 0)`,
    })
    .from(REQUESTS)
    .innerJoin(subscriptions, IS_REQUESTED),
);

/** The columns of a `DueDelivery`: its place in the lines, and the row that `makeBody` makes its body from. */
const DUE_DELIVERY = sql`${deliveries.subscriptionId} AS subscriptionId,
  ${deliveries.priority} AS priority, ${deliveries.attempts} AS attempts, ${deliveries.attemptsMade} AS attemptsMade, ${deliveries.dueAt} AS dueAt,
  ${deliveries.scheduledAt} AS scheduledAt, ${deliveries.lastAt} AS lastAt,
  ${commaList(Object.entries(BODY).map(([name, field]) => sql`${field} AS ${sql.identifier(name)}`))}`;

// The limit is an expression, because SQLite recompiles a statement for each value of a bare LIMIT parameter.
const LIMIT = sql`0 + ${sql.placeholder("limit")}`;

/**
 * Reads the due deliveries of subscriptions whose requests are not spaced, in the order of `claimOrder`, up to the limit
 * for each subscription.
 */
const selectDue = prepared(
  qb.all<DueDelivery>(sql`
    -- The deliveries of each line that are due first. The index deliveries_due_of_subscription reads no others.
    WITH candidate AS (
      SELECT head.subscription_id, head.event_id, row_number() OVER (
        PARTITION BY head.subscription_id ORDER BY ${claimOrder("head")}) AS position
      FROM ${REQUESTS} JOIN ${subscriptions} ON ${MAY_CLAIM} AND NOT ${IS_SPACED}
        CROSS JOIN ${LINES}
        CROSS JOIN deliveries AS head ON head.subscription_id = ${subscriptions.id} AND head.event_id IN (
          SELECT ${deliveries.eventId} FROM ${deliveries} WHERE ${IS_DUE}
          ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${LIMIT}))
    -- The first of these over all lines, with their events and leads by primary key.
    SELECT ${DUE_DELIVERY}
    FROM candidate
      JOIN ${deliveries} ON candidate.position <= ${LIMIT}
        AND ${deliveries.subscriptionId} = candidate.subscription_id AND ${deliveries.eventId} = candidate.event_id
      JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}
    ORDER BY candidate.position`),
);

/**
 * Reads the heads of the lines of subscriptions whose requests are spaced: the delivery that is due first and, among
 * those not tried yet, also the one that is due last. `chooseNext` picks one of them. The index
 * `deliveries_due_of_subscription` reads two rows at most for each line.
 */
const selectHeads = prepared(
  qb.all<DueDelivery>(sql`
    SELECT ${DUE_DELIVERY}
    FROM ${REQUESTS} JOIN ${subscriptions} ON ${MAY_CLAIM} AND ${IS_SPACED}
      CROSS JOIN ${LINES} ON ${IS_UNBLOCKED}
      CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
        SELECT event_id FROM (SELECT ${deliveries.eventId} FROM ${deliveries} WHERE ${IS_DUE}
          ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT 1)
        UNION ALL
        SELECT event_id FROM (SELECT ${deliveries.eventId} FROM ${deliveries} WHERE line.value->>1 = ${PRIORITY.untried} AND ${IS_DUE}
          ORDER BY ${deliveries.dueAt} DESC, ${deliveries.eventId} DESC LIMIT 1))
      JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}`),
);
