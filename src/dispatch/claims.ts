import { type SQL, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { commaList, fromJson, mapColumns, qb } from "../db/builder.ts";
import { combine, commit, type Database, prepared, readAs, type Statements } from "../db/client.ts";
import {
  attempts as attemptsTable,
  deliveries,
  events,
  type LastAttempt,
  PRIORITY,
  replays,
  subscriptions,
} from "../db/schema.ts";
import { isActive, isUnsuccessful, UNSUCCESSFUL } from "../db/states.ts";
import {
  countAttempts,
  countsToAdd,
  dayOf,
  insertAttempts,
  responsesOn,
  WITH_ADDED_COUNTS,
} from "../delivery/attempts.ts";
import { isInLine, LINES, nextSendAt, probeAt, RESEND } from "../delivery/due.ts";
import { cancelPending } from "../delivery/ending.ts";
import {
  type DeliveryAfter,
  type PendingDelivery,
  type SendingState,
  STATE_COLUMNS,
} from "../delivery/policy.ts";
import type { Destination, DueDelivery } from "../delivery/send.ts";
import type { QueueName, WakeUpFacts } from "../delivery/wake.ts";
import { earlierSecretsAt } from "../endpoints/secrets.ts";
import { BODY } from "../events/bodies.ts";
import { sealedDataKeyOf } from "../workspaces/data-keys.ts";
import { isWritable, isWritableOrDraining } from "../workspaces/write-lock.ts";

/*
 * The two transactions of a dispatch. `claim` leases a subscription and reads what may be sent now. `settle` records the
 * outcomes of these requests, and then either claims more or releases the lease.
 *
 * A lease is a dispatch's exclusive right to send to a subscription: `leasedBy` and `leasedUntil`. To claim changes no
 * row of a delivery. A lease ends when it is released, or after `LEASE_MS` if the process has died. A release sets
 * `leasedUntil` to 0 and keeps `leasedBy`, so outcomes are recorded until another dispatch leases.
 *
 * The release and the next claim are in one transaction, so no delivery is missed between them: what was committed before
 * is claimed, or wakes the subscription again (`nextWakeUp`). A transaction that commits later finds the subscription
 * free, and its caller sends a wake-up message.
 *
 * D1 may commit a transaction and lose the reply, so `settle` is safe to repeat. Each of its writes checks that no other
 * dispatch has leased the subscription since, and an outcome is only recorded for a delivery that does not have it yet.
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
  /** The queue of the wake-up message. A subscription that has moved to the other one is not claimed. */
  queue: QueueName;
}

/** A subscription as a claim has found it; times are Unix milliseconds. */
interface ClaimedSubscription extends SendingState, Destination, WakeUpFacts {
  /** The fencing counter. */
  epoch: number;
  /**
   * Whether this dispatch leases it: it was the last one to do so, and has not released it. If not, it claimed nothing. A
   * lease that has run out counts until another dispatch leases.
   */
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
  /** The subscription as it was claimed. */
  subscription: ClaimedSubscription;
  outcomes: OutcomeToRecord[];
  state: SendingState;
  /** Events that are due at once, because another event of their type succeeded. */
  dueNow: readonly string[];
  /** Whether to disable the subscription, because it has failed for too long. */
  disable: boolean;
  /** The last attempt; null if there was none. */
  last: LastAttempt | null;
}

/** Leases a subscription if something may be sent or must be ended, and reads what. It is safe to repeat. */
export function claim(db: Database, claimant: Claimant, now: number): Promise<Claim> {
  return commit(db, selectClaim({ ...valuesOf(claimant, now), isFirst: 1 }, true));
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
  const { subscription, outcomes, state, dueNow, disable, last } = settlement;
  const attempts = outcomes.flatMap(({ outcome, ...one }) =>
    outcome === null ? [] : { ...one, outcome, subscriptionId },
  );
  const values = {
    ...valuesOf(claimant, now),
    outcomes: JSON.stringify(outcomes.map((one) => ({ ...one, subscriptionId }))),
    ...countsToAdd(countAttempts(attempts), now),
    dueNow: JSON.stringify(dueNow),
    sending: JSON.stringify({ ...state, last }),
    epoch: subscription.epoch,
    isFirst: 0,
  };
  const transaction = combine({
    // These three come before the deliveries change. Afterwards, neither they nor a second try finds them unrecorded.
    released: storeStateAndRelease(values),
    stored: attempts.length > 0 ? storeAttempts(values) : undefined,
    replayed: attempts.length > 0 ? countReplayed(values) : undefined,
    changed: outcomes.length > 0 ? changeDeliveries(values) : undefined,
    broughtForward: dueNow.length > 0 ? bringForward(values) : undefined,
    disabled: disable ? disableDead(values) : undefined,
    next: selectClaim(values, mayClaim),
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
/** This dispatch was the last one to lease it. A claim that is tried again, after a lost reply, finds that, too. */
const IS_OURS = sql`${subscriptions.leasedBy} = ${HOLDER}`;
const WE_LEASED_LAST = sql`${SUBSCRIPTION} AND ${IS_OURS} AND ${MAY_RECORD}`;
const IS_FREE = sql`${subscriptions.leasedUntil} <= ${NOW}`;

const OUTCOMES = sql`json_each(${sql.placeholder("outcomes")}) AS change`;
const changeField = fromJson("change");

/**
 * The outcome is not recorded yet, and no other dispatch has leased the subscription. An attempt raises `attemptsMade`. The
 * id of the subscription comes from the outcome, because SQLite would scan its deliveries if it were a constant.
 */
const IS_UNRECORDED = sql`${deliveries.subscriptionId} = change.value->>'subscriptionId' AND ${deliveries.eventId} = change.value->>'eventId'
  AND ${deliveries.state} = 'pending' AND ${deliveries.attemptsMade} = change.value->>'$.claimed.attemptsMade'
  AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${WE_LEASED_LAST})`;

const WAS_RESCHEDULED = sql`((${deliveries.priority}, ${deliveries.dueAt})
  IS NOT (change.value->>'$.claimed.priority', change.value->>'$.claimed.dueAt'))`;
/**
 * The state of the subscription is still the one that was claimed: since then, the URL has not changed, no deliveries were
 * cancelled, and it was not enabled.
 */
const IS_CURRENT = sql`${sql.placeholder("epoch")} = (SELECT ${subscriptions.epoch} FROM ${subscriptions} WHERE ${SUBSCRIPTION})`;
/**
 * The delivery was resent or replayed since it was claimed, or its failure says nothing about the present URL. It stays
 * pending as its row says now, and is sent again, unless it was cancelled.
 */
const IS_OVERTAKEN = sql`(${WAS_RESCHEDULED} OR change.value->>'state' <> 'delivered' AND NOT ${IS_CURRENT})`;

// A success is stored in the row of its delivery alone. If the delivery is sent again, its next attempt overwrites the
// row, so the success is also stored as an attempt.
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

/** A delivery of a replay counts as failed from its first failure on, until a retry succeeds. */
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
          sum((change.value->>'state' <> 'delivered') - (${deliveries.priority} = ${PRIORITY.retry})) AS failed
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
        AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${WE_LEASED_LAST})`,
    ),
);

const SENDING = sql`json_each(json_array(json(${sql.placeholder("sending")}))) AS sending`;
const sendingField = fromJson("sending");
// The same success comes again with a second try. It must not clear an overflow that was noted since it was stored.
const IS_NEW_SUCCESS = sql`(sending.value->>'$.last.status' BETWEEN 200 AND 299
  AND ${subscriptions.lastAttempt} IS NOT sending.value->>'last')`;

// All attempts are counted, or none: a second try of the transaction finds no outcome unrecorded.
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
      pendingExhaustedAt: sql`iif(${IS_NEW_SUCCESS}, NULL, ${subscriptions.pendingExhaustedAt})`,
      dailyCounts: sql`iif(${HAS_UNRECORDED}, ${WITH_ADDED_COUNTS}, ${subscriptions.dailyCounts})`,
      lastAttempt: sql`coalesce(sending.value->>'last', ${subscriptions.lastAttempt})`,
      leasedUntil: 0,
    })
    .from(SENDING)
    .where(WE_LEASED_LAST),
);

/** SQL expression: how many of the first few of these deliveries have failed since the last success. */
function failedOf(those: SQL): SQL<number> {
  return sql`(SELECT count(*) FROM (SELECT ${deliveries.lastAt} AS last_at FROM ${those} LIMIT 20)
    WHERE last_at >= ${subscriptions.failingSince})`;
}

/**
 * At least two events have failed since the last success, so that no single one disables the subscription. However many
 * have failed, it reads up to twenty retries of each event type, those that are due last, and the twenty newest exhausted
 * events. These have usually failed last. It reads more than two, because some may have failed before that success.
 */
const TWO_EVENTS_FAILED = sql`(1 < (
  SELECT sum(${failedOf(sql`${deliveries} WHERE ${isInLine()} ORDER BY ${deliveries.dueAt} DESC`)})
  FROM ${LINES} WHERE line.value->>1 = ${PRIORITY.retry}
) + ${failedOf(sql`${UNSUCCESSFUL} WHERE ${deliveries.subscriptionId} = ${subscriptions.id}
    AND ${deliveries.state} = 'exhausted' AND ${isUnsuccessful()} ORDER BY ${deliveries.eventId} DESC`)})`;

const disableDead = prepared(
  qb
    .update(subscriptions)
    .set({ ...cancelPending(), disabledAt: NOW, disabledByFailures: true })
    .where(sql`${WE_LEASED_LAST} AND ${IS_CURRENT} AND ${TWO_EVENTS_FAILED}`),
);

const PROBE_AT = probeAt(sql`(line.value->>0)`);
const IS_DUE = sql`${isInLine()} AND ${deliveries.dueAt} <= ${NOW}`;

/**
 * While deliveries are to be ended, nothing is sent, and any queue will do. A settlement takes no lease that it has lost:
 * its second try, after a lost reply, would store a state from before another dispatch.
 */
const lease = prepared(
  qb
    .update(subscriptions)
    .set({ leasedBy: sql`${HOLDER}`, leasedUntil: sql`${sql.placeholder("until")}` })
    .where(
      sql`${SUBSCRIPTION} AND (${IS_OURS} OR ${sql.placeholder("isFirst")} AND ${IS_FREE}) AND ${IS_WRITABLE} AND (${subscriptions.hasToEnd}
        OR ${isActive()} AND ${subscriptions.slow} = ${sql.placeholder("isSlow")} AND ${nextSendAt()} <= ${NOW})`,
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
      mustEnd: sql`(${subscriptions.hasToEnd} AND ${IS_WRITABLE})`.mapWith(Boolean),
      maySend: sql`(${isActive()} AND ${IS_WRITABLE})`.mapWith(Boolean),
      isLeased: sql`(${IS_OURS} AND ${subscriptions.leasedUntil} > 0 AND ${MAY_RECORD})`.mapWith(
        Boolean,
      ),
      leasedElsewhere: sql`NOT coalesce(${IS_OURS} OR ${IS_FREE}, 0)`.mapWith(Boolean),
      nextSendAt: nextSendAt(),
      storedResponses: responsesOn(sql.placeholder("today")),
    })
    .from(subscriptions)
    .where(SUBSCRIPTION),
);

/** The columns of a `DueDelivery`: what flow control needs, and the row that its body is made from. */
const DUE_DELIVERY = sql`${deliveries.priority} AS priority, ${deliveries.stepsUsed} AS stepsUsed,
  ${deliveries.attemptsMade} AS attemptsMade, ${deliveries.firstAt} AS firstAt, ${deliveries.dueAt} AS dueAt,
  ${commaList(Object.entries(BODY).map(([name, field]) => sql`${field} AS ${sql.identifier(name)}`))}`;

/** This transaction has leased the subscription, and there is nothing to end first. */
const IS_LEASED_TO_SEND = sql`${WE_LEASED_LAST} AND ${subscriptions.leasedUntil} > 0 AND NOT ${subscriptions.hasToEnd}`;

// The limit is an expression, because SQLite recompiles a statement for each value of a bare LIMIT parameter.
const LIMIT = sql`0 + ${sql.placeholder("limit")}`;

/**
 * Reads what may be sent now. Resends come first. Then event types take turns, so that none waits for the backlog of
 * another; within a type, the priority and the due time decide. If the circuit of an event type is open, it reads only
 * the heads of its lines, and `chooseProbe` picks one of these.
 */
const selectDue = prepared(
  qb.all<DueDelivery>(sql`
    WITH head AS (
      -- The deliveries of each line that are due first. The inner query finds them in deliveries_due_of_subscription alone.
      SELECT ${deliveries.eventId} AS event_id, ${deliveries.type} AS type, ${deliveries.priority} AS priority, ${deliveries.dueAt} AS due_at
      FROM ${subscriptions} CROSS JOIN ${LINES} ON line.value->>1 = ${RESEND} OR ${PROBE_AT} = 0
        CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
          SELECT ${deliveries.eventId} FROM ${deliveries} WHERE ${IS_DUE}
          ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${LIMIT})
      WHERE ${IS_LEASED_TO_SEND}
      UNION ALL
      -- The candidates for a probe: the first of each line, and the last one that was not tried yet.
      SELECT ${deliveries.eventId}, ${deliveries.type}, ${deliveries.priority}, ${deliveries.dueAt}
      FROM ${subscriptions} CROSS JOIN ${LINES} ON line.value->>1 <> ${RESEND} AND ${PROBE_AT} BETWEEN 1 AND ${NOW}
        CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
          SELECT event_id FROM (SELECT ${deliveries.eventId} FROM ${deliveries} WHERE ${IS_DUE}
            ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT 1)
          UNION ALL
          SELECT event_id FROM (SELECT ${deliveries.eventId} FROM ${deliveries} WHERE line.value->>1 = ${PRIORITY.untried} AND ${IS_DUE}
            ORDER BY ${deliveries.dueAt} DESC, ${deliveries.eventId} DESC LIMIT 1))
      WHERE ${IS_LEASED_TO_SEND}),
    ordered AS (
      SELECT event_id, priority <> ${RESEND} AS takes_turns,
        row_number() OVER (PARTITION BY type ORDER BY priority, due_at, event_id) AS position
      FROM head)
    SELECT ${DUE_DELIVERY}
    FROM ordered CROSS JOIN ${deliveries}
        ON ${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")} AND ${deliveries.eventId} = ordered.event_id
      CROSS JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}
    ORDER BY ordered.takes_turns, ordered.position, ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${LIMIT}`),
);

/** Leases the subscription if `mayClaim`, and reads it as it is at the end of the transaction, with what may be sent. */
function selectClaim(values: Record<string, unknown>, mayClaim: boolean): Statements<Claim> {
  const statements = combine({
    leased: mayClaim ? lease(values) : undefined,
    found: selectSubscription(values),
    due: mayClaim ? selectDue(values) : undefined,
  });
  return readAs(statements, ({ found: [subscription], due = [] }) =>
    subscription ? { subscription, due } : null,
  );
}
