import { type SQL, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { dayOf, HOUR_MS } from "../contract/time.ts";
import { fromJson, mapColumns, qb } from "../db/builder.ts";
import {
  combine,
  commit,
  type Database,
  type Part,
  prepared,
  readAs,
  type Statements,
} from "../db/client.ts";
import {
  attempts as attemptsTable,
  deliveries,
  type LastAttempt,
  PRIORITY,
  replays,
  subscriptions,
} from "../db/schema.ts";
import { isActive } from "../db/states.ts";
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
import { isWritable, isWritableOrDraining } from "../workspaces/write-lock.ts";

/*
 * The two transactions of a dispatch. `claim` leases a subscription and reads what may be sent now. `settle` records the
 * outcomes of these requests, and then either claims more or releases the lease.
 *
 * A lease is a dispatch's exclusive right to send to a subscription, until `leasedUntil`. It is given back by a settlement
 * that claims nothing more. If the process dies, the lease ends after `LEASE_MS`, and what was sent without its outcome being
 * recorded is sent again. A claim writes to the subscription only, not to its deliveries.
 *
 * `leasedBy` is a fencing token: the dispatch that leased last, whether or not its lease has ended. Each write of `settle`
 * checks it, so a dispatch that was too slow changes nothing once another one has leased.
 *
 * D1 may commit a transaction and lose the reply, so both are safe to repeat. An outcome is recorded only if its delivery
 * has as many attempts as when it was claimed.
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

/** The dispatch that claims. */
export interface Claimant {
  subscriptionId: string;
  /** Identifies the dispatch. */
  holder: string;
  /** The queue of the wake-up message. What has moved to the other queue is not claimed, but sent a message there. */
  queue: QueueName;
}

/** A subscription as a claim has found it; times are Unix milliseconds. */
interface ClaimedSubscription extends SendingState, Destination, WakeUpFacts {
  /** Rises when deliveries are cancelled, the URL changes or the subscription is enabled: see `IS_CURRENT`. */
  epoch: number;
  /** Whether this dispatch leases it, and may settle. If not, it has claimed nothing. */
  isLeased: boolean;
  /** How many responses to its failed attempts were stored today. */
  storedResponses: number;
}

/** The result of a claim; null if the subscription does not exist. */
export type Claim = { subscription: ClaimedSubscription; due: DueDelivery[] } | null;

/** The outcome of a request, to be recorded. Times are Unix milliseconds. */
export interface OutcomeToRecord extends DeliveryAfter {
  eventId: string;
  type: WebhookEvent;
  /** The delivery as it was claimed. If it was rescheduled since then, it stays pending. */
  claimed: Pick<PendingDelivery, "attemptsMade" | "priority" | "dueAt">;
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
  /** That of the subscription as it was claimed. */
  epoch: number;
  outcomes: OutcomeToRecord[];
  state: SendingState;
  /** Events that are due at once, because another event of their type succeeded. */
  dueNow: readonly string[];
  /** Whether the subscription has failed for so long that it must be disabled. */
  disable: boolean;
  /** The last attempt; null if there was none. */
  last: LastAttempt | null;
}

/** Leases a subscription if something may be sent or must be ended, and reads what. It is safe to repeat. */
export function claim(db: Database, claimant: Claimant, now: number): Promise<Claim> {
  const values = valuesOf(claimant, now);
  return commit(db, toClaim(leaseIfFree(values), values));
}

/**
 * Records the outcomes of a claim. Then claims again, or releases the lease if nothing may be sent or `mayClaim` is
 * false. It is safe to repeat, as after an error that leaves open whether it was committed.
 */
export async function settle(
  db: Database,
  claimant: Claimant,
  settlement: Settlement,
  mayClaim: boolean,
  now: number,
): Promise<Claim> {
  const { subscriptionId } = claimant;
  const { epoch, outcomes, state, dueNow, disable, last } = settlement;
  const attempts = outcomes.flatMap(({ outcome, ...one }) =>
    outcome === null ? [] : { ...one, outcome },
  );
  const values = {
    ...valuesOf(claimant, now),
    outcomes: JSON.stringify(outcomes.map((one) => ({ ...one, subscriptionId }))),
    ...countsToAdd(countAttempts(attempts), now),
    dueNow: JSON.stringify(dueNow),
    sending: JSON.stringify({ ...state, last }),
    epoch,
  };
  const transaction = combine({
    // These three come before `changed`, which marks the outcomes as recorded: see `IS_UNRECORDED`.
    released: storeStateAndRelease(values),
    stored: attempts.length > 0 ? storeAttempts(values) : undefined,
    replayed: attempts.length > 0 ? countReplayed(values) : undefined,
    changed: outcomes.length > 0 ? changeDeliveries(values) : undefined,
    // These two read what those before have stored.
    broughtForward: dueNow.length > 0 ? bringForward(values) : undefined,
    disabled: disable ? disableSubscription(values) : undefined,
    next: toClaim(mayClaim ? leaseAgain(values) : undefined, values),
  });
  return (await commit(db, transaction)).next;
}

/** The values of the placeholders that both transactions have. */
const valuesOf = ({ subscriptionId, holder, queue }: Claimant, now: number) => ({
  subscriptionId,
  holder,
  now,
  today: dayOf(now),
  until: now + LEASE_MS,
  isSlow: queue === "slow" ? 1 : 0,
  limit: CLAIM_MAX[queue],
});

const SUBSCRIPTION = sql`${subscriptions.id} = ${sql.placeholder("subscriptionId")}`;
const HOLDER = sql.placeholder("holder");
const NOW = sql`${sql.placeholder("now")}`;
const IS_WRITABLE = isWritable(subscriptions.workspaceId);
/** Outcomes are still recorded, and leases released, while the workspace drains, because its move waits for them. */
const MAY_RECORD = isWritableOrDraining(subscriptions.workspaceId);
const WE_LEASED_LAST = sql`${subscriptions.leasedBy} = ${HOLDER}`;
/** The subscription, to which a settlement may write: no other dispatch has leased it since. */
const MAY_SETTLE = sql`${SUBSCRIPTION} AND ${WE_LEASED_LAST} AND ${MAY_RECORD}`;
/**
 * At the end of a transaction: this dispatch holds the lease. `leasedUntil` is 0 if it has just released it. A lease that has
 * run out is still held while no other dispatch has taken it.
 */
const IS_LEASED = sql`(${MAY_SETTLE} AND ${subscriptions.leasedUntil} > 0)`;
const IS_FREE = sql`${subscriptions.leasedUntil} <= ${NOW}`;

const OUTCOMES = sql`json_each(${sql.placeholder("outcomes")}) AS change`;
const changeField = fromJson("change");

/**
 * The outcome is still to be recorded, and this dispatch may do so. Recording an attempt raises `attemptsMade`. An outcome
 * without an attempt raises nothing, and recording it twice changes nothing. The id of the subscription comes from the
 * outcome, because SQLite would scan its deliveries if it were a constant.
 */
const IS_UNRECORDED = sql`${deliveries.subscriptionId} = change.value->>'subscriptionId' AND ${deliveries.eventId} = change.value->>'eventId'
  AND ${deliveries.state} = 'pending' AND ${deliveries.attemptsMade} = change.value->>'$.claimed.attemptsMade'
  AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${MAY_SETTLE})`;

/** Since the claim, the URL has not changed, no deliveries were cancelled, and the subscription was not enabled. */
const IS_CURRENT = sql`${sql.placeholder("epoch")} = (SELECT ${subscriptions.epoch} FROM ${subscriptions} WHERE ${SUBSCRIPTION})`;
const WAS_RESCHEDULED = sql`((${deliveries.priority}, ${deliveries.dueAt})
  IS NOT (change.value->>'$.claimed.priority', change.value->>'$.claimed.dueAt'))`;
/**
 * The outcome decides nothing about the delivery: it was resent or replayed since the claim, or it failed, and the
 * subscription was changed since (`IS_CURRENT`). The attempt is stored, and the delivery stays pending as its row says now.
 */
const IS_OVERTAKEN = sql`(${WAS_RESCHEDULED} OR change.value->>'state' <> 'delivered' AND NOT ${IS_CURRENT})`;

// The row of a delivery stores its success. If the delivery was overtaken, its row will be overwritten, so the success is
// stored as an attempt, too.
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
        AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${MAY_SETTLE})`,
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

/** Some attempts are not recorded yet. A second try finds none, so it does not count them again. */
const HAS_UNRECORDED = sql`EXISTS (SELECT 1 FROM ${OUTCOMES} JOIN ${deliveries} ON ${IS_UNRECORDED}
  WHERE change.value->>'outcome' IS NOT NULL)`;

/**
 * Stores the sending state, counts the attempts and releases the lease. A claim in the same transaction leases the
 * subscription again.
 */
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
      dailyCounts: sql`iif(${HAS_UNRECORDED}, ${WITH_ADDED_COUNTS}, ${subscriptions.dailyCounts})`,
      lastAttempt: sql`coalesce(sending.value->>'last', ${subscriptions.lastAttempt})`,
      leasedUntil: 0,
    })
    .from(SENDING)
    .where(MAY_SETTLE),
);

const disableSubscription = prepared(disableFailing(sql`${MAY_SETTLE} AND ${IS_CURRENT}`));

/** Leases the subscription if something may be sent, or deliveries are to be ended, which any queue may do. */
const lease = (mayTake: SQL) =>
  prepared(
    qb
      .update(subscriptions)
      .set({ leasedBy: sql`${HOLDER}`, leasedUntil: sql`${sql.placeholder("until")}` })
      .where(
        sql`${SUBSCRIPTION} AND ${mayTake} AND ${IS_WRITABLE} AND (${subscriptions.hasToEnd}
          OR ${isActive()} AND ${subscriptions.slow} = ${sql.placeholder("isSlow")} AND ${nextSendAt()} <= ${NOW})`,
      ),
  );

/** For `claim`, whose first try may have leased it. */
const leaseIfFree = lease(sql`(${IS_FREE} OR ${WE_LEASED_LAST})`);
/**
 * For `settle`, which takes no lease that it has lost, even if the subscription is free again. Otherwise this dispatch would
 * be `leasedBy` again. If the reply were lost, the second try would then overwrite what the other dispatch has stored.
 */
const leaseAgain = lease(WE_LEASED_LAST);

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
      // If this dispatch leases the subscription, the workspace is writable, so this is `hasToEnd`.
      mustEnd: sql`(${subscriptions.hasToEnd} AND ${IS_WRITABLE})`.mapWith(Boolean),
      maySend: sql`(${isActive()} AND ${IS_WRITABLE})`.mapWith(Boolean),
      isLeased: IS_LEASED.mapWith(Boolean),
      leasedElsewhere: sql`NOT (${WE_LEASED_LAST} OR ${IS_FREE})`.mapWith(Boolean),
      nextSendAt: nextSendAt(),
      storedResponses: responsesOn(sql.placeholder("today")),
    })
    .from(subscriptions)
    .where(SUBSCRIPTION),
);

/** While deliveries are to be ended, nothing is claimed. So a cancelled delivery is not sent, although it still says `pending`. */
const selectDue = prepared(selectDueOf(sql`${IS_LEASED} AND NOT ${subscriptions.hasToEnd}`));

/** Reads the subscription after the other statements of a transaction, and what may be sent if it was `leased`. */
function toClaim(leased: Part | undefined, values: Record<string, unknown>): Statements<Claim> {
  const statements = combine({
    leased,
    found: selectSubscription(values),
    due: leased && selectDue(values),
  });
  return readAs(statements, ({ found: [subscription], due = [] }) =>
    subscription ? { subscription, due } : null,
  );
}
