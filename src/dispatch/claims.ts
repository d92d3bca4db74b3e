import { sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { dayOf, HOUR_MS } from "../contract/time.ts";
import { fromJson, mapColumns, qb } from "../db/builder.ts";
import { combine, commit, type Database, prepared, readAs, type Statements } from "../db/client.ts";
import {
  attempts as attemptsTable,
  deliveries,
  type LastAttempt,
  PRIORITY,
  replays,
  subscriptions,
} from "../db/schema.ts";
import { isActive, isWritable, isWritableOrDraining } from "../db/states.ts";
import {
  countAttempts,
  countsToAdd,
  insertAttempts,
  responsesOn,
  WITH_ADDED_COUNTS,
} from "../delivery/attempts.ts";
import { nextSendAt, selectDueOf } from "../delivery/due.ts";
import { disableFailing } from "../delivery/ending.ts";
import {
  type DeliveryAfter,
  type PendingDelivery,
  type SendingState,
  STATE_COLUMNS,
} from "../delivery/policy.ts";
import type { Destination, DueDelivery } from "../delivery/send.ts";
import type { QueueName, WakeUpFacts } from "../delivery/wake.ts";
import { earlierSecretsAt } from "../endpoints/secrets.ts";
import { sealedDataKeyOf } from "../workspaces/data-keys.ts";

/*
 * The two transactions of a dispatch. `claim` leases a subscription and reads what may be sent now. `settle` records the
 * outcomes of these requests, and then either claims more or releases the lease.
 *
 * A lease is a dispatch's exclusive right to send to a subscription, until `leasedUntil`. It is given back by a settlement
 * that claims nothing more. If the process dies, the lease ends after `LEASE_MS`, and what was sent without its outcome being
 * recorded is sent again by the next dispatch, which the scheduled job wakes at the latest. A claim writes to the
 * subscription only, not to its deliveries.
 *
 * `leasedBy` is a fencing token, which each claim and each settlement replaces with a new one. What a claim has sent is
 * settled only while its token stands there. So a dispatch that was too slow changes nothing once another one has leased.
 * And both transactions are safe to repeat, as after D1 has committed one and lost the reply. The second try of a claim finds
 * its own token, and reads the same; that of a settlement finds the new one, and records nothing.
 *
 * Nothing is missed between a settlement and the next claim, because they are one transaction. What was committed before
 * is claimed, or wakes the subscription again (`nextWakeUp`). A transaction that commits later finds the subscription
 * free, and its caller sends a wake-up message.
 */

/** How long a lease lasts after the last claim: a request, and recording its outcome. */
export const LEASE_MS = POST_TIMEOUT_MS + 10_000;

/**
 * Maximum deliveries of a claim: more than a fast endpoint takes in a second, and with the largest events 3 MB. An endpoint
 * that is slow takes a few.
 */
export const CLAIM_MAX: Readonly<Record<QueueName, number>> = { fast: 100, slow: 12 };

/** The subscription that a dispatch claims. */
export interface Claimant {
  subscriptionId: string;
  /** The queue of the wake-up message. What has moved to the other queue is not claimed, but sent a message there. */
  queue: QueueName;
}

/** A subscription as a transaction has found it; times are Unix milliseconds. */
interface FoundSubscription extends SendingState, Destination, WakeUpFacts {
  /** Rises when deliveries are cancelled, the URL changes or the subscription is enabled: see `IS_CURRENT`. */
  epoch: number;
  /** The token of the lease. */
  token: string;
  /** Whether this transaction leases it, and has claimed what is due. If not, it is free. */
  isLeased: boolean;
  /** Whether deliveries are to be ended without a request. Until then, nothing is due. */
  hasToEnd: boolean;
  /** How many responses to its failed attempts were stored today. */
  storedResponses: number;
}

/** The result of both transactions; null if the subscription does not exist, or another dispatch leases it. */
export type Found = { subscription: FoundSubscription; due: DueDelivery[] } | null;

/** The outcome of a request, to be recorded. Times are Unix milliseconds. */
export interface OutcomeToRecord extends DeliveryAfter {
  eventId: string;
  type: WebhookEvent;
  /** The delivery as it was claimed, which shows whether it was resent or replayed since then, or its replay stopped. */
  claimed: Pick<PendingDelivery, "priority" | "dueAt">;
  /** Null if no attempt was made. */
  outcome: string | null;
  status: number | null;
  startedAt: number;
  durationMs: number;
  /** The stored part of the response, encrypted, in hexadecimal. */
  response: string | null;
}

/** The changes that the requests of a claim have made. */
export interface Settlement {
  /** The token of the claim. */
  token: string;
  /** The epoch of the subscription as it was claimed. */
  epoch: number;
  /** In the order in which the attempts ended. */
  outcomes: OutcomeToRecord[];
  state: SendingState;
  /** Events that are due at once, because another event of their type succeeded. */
  dueNow: readonly string[];
  /** Whether the subscription has failed for so long that it must be disabled. */
  disable: boolean;
}

/** Leases a subscription if something may be sent or must be ended, and reads what. It is safe to repeat. */
export function claim(db: Database, claimant: Claimant, now: number): Promise<Found> {
  return commit(db, toClaim(true, valuesOf(claimant, now)));
}

/**
 * Records the outcomes of a claim. Then claims again, or releases the lease if nothing may be sent or `mayClaim` is
 * false. It is safe to repeat.
 */
export async function settle(
  db: Database,
  claimant: Claimant,
  settlement: Settlement,
  mayClaim: boolean,
  now: number,
): Promise<Found> {
  const { subscriptionId } = claimant;
  const { token, epoch, outcomes, state, dueNow, disable } = settlement;
  const attempts = outcomes.flatMap(({ outcome, ...one }) =>
    outcome === null ? [] : { ...one, outcome },
  );
  const values = {
    ...valuesOf(claimant, now),
    outcomes: JSON.stringify(outcomes.map((one) => ({ ...one, subscriptionId }))),
    ...countsToAdd(countAttempts(attempts), now),
    dueNow: JSON.stringify(dueNow),
    sending: JSON.stringify({ ...state, last: lastOf(attempts) }),
    formerToken: token,
    epoch,
  };
  const transaction = combine({
    // These two read the priority and the due time that `changed` overwrites: see `IS_OVERTAKEN`.
    stored: attempts.length > 0 ? storeAttempts(values) : undefined,
    replayed: attempts.length > 0 ? countReplayed(values) : undefined,
    changed: outcomes.length > 0 ? changeDeliveries(values) : undefined,
    // It follows `changed`, because some of these events may have been rejected in this claim.
    broughtForward: dueNow.length > 0 ? bringForward(values) : undefined,
    // It replaces the token, which all statements before it check.
    released: storeStateAndRelease(values),
    // It reads the state that was just stored. Disabling raises the epoch, so a second try does nothing.
    disabled: disable ? disableSubscription(values) : undefined,
    next: toClaim(mayClaim, values),
  });
  return (await commit(db, transaction)).next;
}

/** The last attempt whose event could be read, because others say nothing about the endpoint; null if there was none. */
function lastOf(attempts: readonly (OutcomeToRecord & { outcome: string })[]): LastAttempt | null {
  const last = attempts.findLast(({ outcome }) => outcome !== "unreadable");
  if (!last) return null;
  const { startedAt, outcome, status, durationMs } = last;
  return { at: startedAt, outcome, status, durationMs };
}

/** The values of the placeholders that both transactions have. */
const valuesOf = ({ subscriptionId, queue }: Claimant, now: number) => ({
  subscriptionId,
  newToken: crypto.randomUUID(),
  now,
  today: dayOf(now),
  until: now + LEASE_MS,
  isSlow: queue === "slow" ? 1 : 0,
  limit: CLAIM_MAX[queue],
});

const SUBSCRIPTION = sql`${subscriptions.id} = ${sql.placeholder("subscriptionId")}`;
const NEW_TOKEN = sql`${sql.placeholder("newToken")}`;
const NOW = sql`${sql.placeholder("now")}`;
const IS_WRITABLE = isWritable(subscriptions.workspaceId);
/** Outcomes are still recorded, and leases released, while the workspace drains, because its move waits for them. */
const MAY_RECORD = isWritableOrDraining(subscriptions.workspaceId);
/** The subscription, while it has the token of the claim that is settled. */
const IS_UNSETTLED = sql`${SUBSCRIPTION} AND ${subscriptions.leasedBy} = ${sql.placeholder("formerToken")} AND ${MAY_RECORD}`;
/** The subscription, once it has the token of this transaction. */
const IS_RENEWED = sql`${SUBSCRIPTION} AND ${subscriptions.leasedBy} = ${NEW_TOKEN}`;
/** This transaction, or its first try, has leased the subscription. */
const IS_LEASED = sql`(${IS_RENEWED} AND ${subscriptions.leasedUntil} > 0)`;
const IS_FREE = sql`${subscriptions.leasedUntil} <= ${NOW}`;

const OUTCOMES = sql`json_each(${sql.placeholder("outcomes")}) AS change`;
const changeField = fromJson("change");

/**
 * The delivery of an outcome that is still to be recorded. The id of the subscription comes from the outcome, because
 * SQLite would scan its deliveries if it were a constant.
 */
const IS_UNRECORDED = sql`${deliveries.subscriptionId} = change.value->>'subscriptionId' AND ${deliveries.eventId} = change.value->>'eventId'
  AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${IS_UNSETTLED})`;

/** Since the claim, the URL has not changed, no deliveries were cancelled, and the subscription was not enabled. */
const IS_CURRENT = sql`${sql.placeholder("epoch")} = (SELECT ${subscriptions.epoch} FROM ${subscriptions} WHERE ${SUBSCRIPTION})`;
/** Since the claim, the delivery was resent or replayed, which changes its due time. A stop does not change it. */
const WAS_RESCHEDULED = sql`${deliveries.dueAt} IS NOT change.value->>'$.claimed.dueAt'`;
/** Since the claim, its replay was stopped, which restores its state and priority. */
const WAS_STOPPED = sql`(${deliveries.state}, ${deliveries.priority}) IS NOT ('pending', change.value->>'$.claimed.priority')`;
/**
 * The outcome decides nothing about the delivery, although its attempt is stored: since the claim, the delivery was resent
 * or replayed. A failure is overtaken as well if the replay was stopped, or the subscription changed (`IS_CURRENT`). A 2xx is
 * not, because the customer has the event, whatever else has changed.
 */
const IS_OVERTAKEN = sql`(${WAS_RESCHEDULED}
  OR change.value->>'state' <> 'delivered' AND (${WAS_STOPPED} OR NOT ${IS_CURRENT}))`;

// The row of a delivery stores its success. If the delivery was overtaken, its next attempt overwrites the row, so the
// success is stored as an attempt.
const storeAttempts = prepared(
  insertAttempts(
    {
      at: sql`change.value->>'startedAt'`,
      ...mapColumns(attemptsTable, ["outcome", "status", "durationMs", "response"], changeField),
    },
    sql`FROM ${OUTCOMES} JOIN ${deliveries} ON ${IS_UNRECORDED}
      WHERE change.value->>'outcome' IS NOT NULL AND (change.value->>'state' <> 'delivered' OR ${IS_OVERTAKEN})`,
  ),
);

/** A delivery of a replay counts as failed from its first failure on. If a retry succeeds, it counts as delivered instead. */
const countReplayed = prepared(
  qb
    .update(replays)
    .set({
      delivered: sql`${replays.delivered} + sent.delivered`,
      failed: sql`${replays.failed} + sent.failed`,
    })
    .from(
      sql`(
        SELECT ${deliveries.workspaceId} AS workspace, ${deliveries.replayId} AS replay,
          sum(change.value->>'state' = 'delivered') AS delivered,
          sum(CASE WHEN ${deliveries.priority} <> ${PRIORITY.retry} THEN change.value->>'state' <> 'delivered'
            ELSE -(change.value->>'state' = 'delivered') END) AS failed
        FROM ${OUTCOMES} JOIN ${deliveries} ON ${IS_UNRECORDED}
        WHERE ${deliveries.replayId} IS NOT NULL AND change.value->>'outcome' IS NOT NULL AND NOT ${IS_OVERTAKEN}
        GROUP BY ${deliveries.workspaceId}, ${deliveries.replayId}) AS sent`,
    )
    .where(
      sql`${replays.workspaceId} = sent.workspace AND ${replays.subscriptionId} = ${sql.placeholder("subscriptionId")}
        AND ${replays.id} = sent.replay`,
    ),
);

/** SQL expression: the value of a column after an outcome, unless the delivery was overtaken. */
const unlessOvertaken = (column: keyof DeliveryAfter) =>
  sql`iif(${IS_OVERTAKEN}, ${deliveries[column]}, change.value->>${sql.raw(`'${column}'`)})`;

const changeDeliveries = prepared(
  qb
    .update(deliveries)
    .set({
      state: unlessOvertaken("state"),
      priority: unlessOvertaken("priority"),
      stepsUsed: unlessOvertaken("stepsUsed"),
      firstAt: unlessOvertaken("firstAt"),
      settledAt: unlessOvertaken("settledAt"),
      dueAt: unlessOvertaken("dueAt"),
      deliveredEarlier: sql`(${deliveries.deliveredEarlier} OR ${IS_OVERTAKEN} AND change.value->>'state' = 'delivered')`,
      attemptsMade: sql`${deliveries.attemptsMade} + (change.value->>'outcome' IS NOT NULL)`,
      lastOutcome: sql`coalesce(change.value->>'outcome', ${deliveries.lastOutcome})`,
      lastStatus: sql`iif(change.value->>'outcome' IS NULL, ${deliveries.lastStatus}, change.value->>'status')`,
      lastAt: sql`iif(change.value->>'outcome' IS NULL, ${deliveries.lastAt}, change.value->>'startedAt')`,
      lastDurationMs: sql`iif(change.value->>'outcome' IS NULL, ${deliveries.lastDurationMs}, change.value->>'durationMs')`,
    })
    .from(OUTCOMES)
    .where(IS_UNRECORDED),
);

const bringForward = prepared(
  qb
    .update(deliveries)
    .set({ dueAt: NOW })
    .where(
      sql`${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")}
        AND ${deliveries.eventId} IN (SELECT value FROM json_each(${sql.placeholder("dueNow")}))
        AND ${deliveries.state} = 'pending' AND ${deliveries.priority} = ${PRIORITY.retry}
        AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${IS_UNSETTLED})`,
    ),
);

const SENDING = sql`json_each(json_array(json(${sql.placeholder("sending")}))) AS sending`;
const sendingField = fromJson("sending");
/**
 * How long the note of an overflow stays at least. The scheduled job notifies administrators of it in its next run, although
 * an endpoint that is too slow for its events goes on accepting some.
 */
const OVERFLOW_NOTED_MS = HOUR_MS;

/** The last attempt succeeded, and it started long enough after the overflow was noted. */
const ENDS_OVERFLOW = sql`(sending.value->>'$.last.status' BETWEEN 200 AND 299
  AND sending.value->>'$.last.at' >= ${subscriptions.pendingExhaustedAt} + ${OVERFLOW_NOTED_MS})`;

/** Stores the sending state, counts the attempts, and releases the lease, which a claim in the same transaction takes again. */
const storeStateAndRelease = prepared(
  qb
    .update(subscriptions)
    .set({
      ...mapColumns(
        subscriptions,
        STATE_COLUMNS,
        (column, name) => sql`iif(${IS_CURRENT}, ${sendingField(column, name)}, ${column})`,
      ),
      pendingExhaustedAt: sql`iif(${ENDS_OVERFLOW}, NULL, ${subscriptions.pendingExhaustedAt})`,
      dailyCounts: WITH_ADDED_COUNTS,
      lastAttempt: sql`coalesce(sending.value->>'last', ${subscriptions.lastAttempt})`,
      leasedBy: NEW_TOKEN,
      leasedUntil: 0,
    })
    .from(SENDING)
    .where(IS_UNSETTLED),
);

const disableSubscription = prepared(disableFailing(sql`${IS_RENEWED} AND ${IS_CURRENT}`));

/** When the subscription is to be dispatched, to send or to end deliveries; null if there is nothing to do. */
const DISPATCH_AT = sql<number | null>`CASE WHEN NOT ${IS_WRITABLE} THEN NULL
  WHEN ${subscriptions.hasToEnd} THEN 0 WHEN ${isActive()} THEN ${nextSendAt()} END`;

/** Leases the subscription if something may be sent, or deliveries are to be ended, which any queue may do. */
const lease = prepared(
  qb
    .update(subscriptions)
    .set({ leasedBy: NEW_TOKEN, leasedUntil: sql`${sql.placeholder("until")}` })
    .where(
      sql`${SUBSCRIPTION} AND ${IS_FREE} AND ${DISPATCH_AT} <= ${NOW}
        AND (${subscriptions.hasToEnd} OR ${subscriptions.slow} = ${sql.placeholder("isSlow")})`,
    ),
);

const selectSubscription = prepared(
  qb
    .select({
      subscriptionId: subscriptions.id,
      workspaceId: subscriptions.workspaceId,
      sealedDataKey: sealedDataKeyOf(subscriptions.workspaceId),
      url: subscriptions.url,
      sealedSecret: subscriptions.sealedSecret,
      sealedHeaders: subscriptions.sealedHeaders,
      earlierSecrets: earlierSecretsAt(sql.placeholder("now")),
      concurrency: subscriptions.concurrency,
      slow: subscriptions.slow,
      circuits: subscriptions.circuits,
      failingSince: subscriptions.failingSince,
      failures: subscriptions.failures,
      epoch: subscriptions.epoch,
      nextMessageAt: subscriptions.nextMessageAt,
      token: sql<string>`${NEW_TOKEN}`,
      isLeased: IS_LEASED.mapWith(Boolean),
      hasToEnd: subscriptions.hasToEnd,
      dispatchAt: DISPATCH_AT,
      storedResponses: responsesOn(sql.placeholder("today")),
    })
    .from(subscriptions)
    // Nothing is read while another dispatch leases it: that one looks for more before it releases the lease.
    .where(sql`${SUBSCRIPTION} AND (${IS_LEASED} OR ${IS_FREE})`),
);

/** While deliveries are to be ended, nothing is claimed. So a cancelled delivery is not sent, although it still says `pending`. */
const selectDue = prepared(selectDueOf(sql`${IS_LEASED} AND NOT ${subscriptions.hasToEnd}`));

/** Ends a transaction: leases the subscription if `mayLease`, and reads it and what may be sent then. */
function toClaim(mayLease: boolean, values: Record<string, unknown>): Statements<Found> {
  const statements = combine({
    leased: mayLease ? lease(values) : undefined,
    found: selectSubscription(values),
    due: mayLease ? selectDue(values) : undefined,
  });
  return readAs(statements, ({ found: [subscription], due = [] }) =>
    subscription ? { subscription, due } : null,
  );
}
