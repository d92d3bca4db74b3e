import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import type { DeliveryState, RedeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { InputError, unknownInput } from "../contract/input-error.ts";
import { RESENDS_AHEAD_MS } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, type Part, withoutRetries } from "../db/client.ts";
import { deliveries, events, PRIORITY, type Priority, subscriptions } from "../db/schema.ts";
import { deliveryState, listsType } from "../db/states.ts";
import { nextAttemptAt } from "../delivery/due.ts";
import type { QueueName } from "../delivery/policy.ts";
import type { StatusClass } from "../history/deliveries.ts";
import {
  enableSubscription,
  findSubscription,
  type KnownSubscription,
  knownSubscription,
} from "../subscriptions/subscriptions.ts";
import { fillSlots, nextSlotAt, type ResentEvent, takeSlots } from "./slots.ts";

/*
 * Sends events again. A resend sends the events that a caller names by id. A replay sends those of a time range, such
 * as all that a subscription did not receive while it was disabled.
 *
 * Both read the events with their deliveries, decide here which of them to send, and write that in one transaction.
 * The transaction leaves out deliveries that have changed since they were read. slots.ts has its statements, which send
 * each event in a slot of its own.
 */

/** The states of events that a disabled subscription has not received. */
const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/**
 * How far the range of a call that enables a subscription extends beyond the time of the call. The subscription is
 * enabled a moment later and misses what is recorded until then, and an event may be dated by a clock that is ahead.
 */
const ENABLING_MAX_MS = MINUTE_MS;

/** Maximum events that one call of a range examines. */
export const REDELIVERY_EXAMINED_MAX = 1_000;

/** A range of a subscription's events, with the events in it to send; times are Unix milliseconds. */
export interface Range {
  since: number;
  /** Exclusive; null for no end. */
  until: number | null;
  /** The states to send again. A pending delivery that was not tried yet is sent anyway. */
  states: readonly RedeliveryState[];
  /** The event type to send; null for all. */
  type?: WebhookEvent | null;
  /** The status of the last attempt, as in `DeliveryFilter`; null admits all, and events without a delivery. */
  status?: number | StatusClass | null;
  /** Where the previous call stopped, and when the first call was made; null in the first call. */
  after?: Position | null;
  /** Whether to only count the events, and send nothing. */
  dryRun?: boolean;
}

export interface Replayed {
  /** The number of events that were scheduled. */
  count: number;
  /** Where the next call for the range continues; null once the whole range has been examined. */
  next: Position | null;
  /** The queue for its wake-up message. */
  queue: QueueName;
  /**
   * Listed event types of which the range has no stored event, if one call has examined all of it. An event that no
   * subscription of the workspace listed when it was recorded was never stored, so it is not among the missed ones.
   */
  notStored?: WebhookEvent[];
}

/**
 * Enables a disabled subscription again. With `since`, also replays the events since then that it has not received,
 * of the types that it lists. Events from before its creation are left out.
 *
 * @param after where the previous call stopped. A call that continues does not enable the subscription, because it
 *   may have been disabled since the first call.
 * @returns null, without sending anything, if events are to be sent to a subscription that is disabled, or whose
 *   workspace has no access.
 * @throws InputError if there is no such subscription.
 */
export async function enableAndReplay(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
  after: Position | null = null,
): Promise<Replayed | null> {
  if (since !== null) {
    const { accessGranted } = await findSubscription(db, subscriptionId, now);
    if (!accessGranted) return null;
  }
  // Not retried: a second try could enable a subscription that was disabled again in between.
  const { subscription } = await commit(withoutRetries(db), {
    enabled: after === null ? enableSubscription(subscriptionId) : undefined,
    subscription: knownSubscription(subscriptionId, now),
  });
  if (since === null) return { count: 0, next: null, queue: subscription.queue };
  if (!subscription.isActive) return null;
  const range = { since, until: null, states: UNDELIVERED, after };
  return replayRange(db, subscription, range, now, ENABLING_MAX_MS);
}

/**
 * Sends events to a subscription again. A resend is sent even while the endpoint fails. A replay ends the current
 * delay between requests, because the caller has presumably repaired the endpoint; a success then ends the spacing.
 *
 * @returns null, without sending anything, if the subscription is disabled or its workspace has no access.
 * @throws InputError for a subscription that does not exist, an event that it could not receive, or too many resends.
 */
export async function sendAgain(
  db: Database,
  subscriptionId: string,
  wanted: { eventIds: readonly string[]; dryRun?: boolean } | Range,
  now: number,
): Promise<Replayed | null> {
  const subscription = await findSubscription(db, subscriptionId, now);
  if (!subscription.isActive) return null;
  if ("since" in wanted) return replayRange(db, subscription, wanted, now);
  const { eventIds, dryRun = false } = wanted;
  const count = await resend(db, subscriptionId, eventIds, dryRun, now);
  return { count, next: null, queue: subscription.queue };
}

/** Returns the error for a subscription that is not active, where events are to be sent to it again. */
export function inactiveWebhook(): InputError {
  return new InputError("webhookId", "it is disabled, or its workspace has no access");
}

/** An event with its delivery to the subscription. Without a delivery, the fields of the delivery are null. */
interface Candidate {
  eventId: string;
  type: WebhookEvent;
  /** Whether the subscription lists its type, and it is not a test. */
  isListed: 0 | 1;
  /** The state in the row of the delivery. */
  storedState: DeliveryState | null;
  /** The state of the delivery, which may be cancelled although its row still says `pending`. */
  state: DeliveryState | null;
  priority: Priority | null;
  attempts: number | null;
  dueAt: number | null;
  deliveredEarlier: 0 | 1 | null;
  nextAttemptAt: number | null;
  outcome: string | null;
  status: number | null;
  /** When the next free slot of the subscription is. */
  nextSlotAt: number;
}

/**
 * Selects events of a subscription's workspace, each with its delivery to the subscription. SQLite looks up the
 * subscription, then the events by their primary key, then the delivery of each by its primary key: CROSS JOIN keeps
 * this order. So it reads the events that `which` selects, with one delivery each.
 *
 * @param slotAt SQL expression: when the next free slot of the subscription is.
 * @param which SQL condition on `events`, with an optional ORDER BY and LIMIT.
 */
function selectCandidates(subscriptionId: string, slotAt: SQL, which: SQL): SQL {
  return sql`
    SELECT
      ${events.id} AS eventId,
      ${events.type} AS type,
      NOT ${events.test} AND ${listsType(events.type)} AS isListed,
      ${deliveries.state} AS storedState,
      ${deliveryState()} AS state,
      ${deliveries.priority} AS priority,
      ${deliveries.attempts} AS attempts,
      ${deliveries.dueAt} AS dueAt,
      ${deliveries.deliveredEarlier} AS deliveredEarlier,
      ${nextAttemptAt()} AS nextAttemptAt,
      ${deliveries.lastOutcome} AS outcome,
      ${deliveries.lastStatus} AS status,
      ${slotAt} AS nextSlotAt
    FROM ${subscriptions}
      CROSS JOIN ${events} ON ${events.workspaceId} = ${subscriptions.workspaceId}
      LEFT JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id}
        AND ${deliveries.eventId} = ${events.id}
    WHERE ${subscriptions.id} = ${subscriptionId} AND ${which}`;
}

/**
 * Returns the state in which an event may be sent again. An event that was ever delivered counts as delivered, even
 * if it was sent again and failed.
 *
 * @returns null if the event is sent anyway: it was not tried yet, or its next attempt comes before the next slot.
 */
function stateOf(candidate: Candidate): RedeliveryState | null {
  const { state, attempts, deliveredEarlier, nextAttemptAt, nextSlotAt: slotAt } = candidate;
  if (state === null) return "missed";
  if (state === "test") return null;
  if (state !== "pending") return deliveredEarlier ? "delivered" : state;
  return (attempts ?? 0) > 0 && (nextAttemptAt ?? 0) > slotAt ? "retrying" : null;
}

/**
 * Schedules a part of a range, oldest event first, after the slots that are already taken. The transaction is tried
 * once. If its reply is lost, a repeated call schedules only the events that the first one did not.
 *
 * @param laterMs how far the range extends beyond the time of the first call.
 */
async function replayRange(
  db: Database,
  subscription: KnownSubscription,
  { since, until, states, type, status, after, dryRun }: Range,
  now: number,
  laterMs = 0,
): Promise<Replayed> {
  const { id, createdAt, queue } = subscription;
  // The range does not move on with the calls that continue it. Otherwise, it might never end.
  const requestedAt = Math.min(after?.at ?? now, now);
  const from = eventIdAt(Math.max(since, createdAt));
  // A cursor does not lead out of the range that the caller names.
  const start = after && after.id > from ? after.id : from;
  const end = eventIdAt(Math.min(until ?? Number.POSITIVE_INFINITY, requestedAt + laterMs + 1));
  const isInRange = sql`${events.id} > ${start} AND ${events.id} < ${end}
    ORDER BY ${events.id} LIMIT ${REDELIVERY_EXAMINED_MAX}`;
  const slotAt = nextSlotAt("replaySlotsUntil", now);
  const candidates = await db.all<Candidate>(selectCandidates(id, slotAt, isInRange));
  const wanted = candidates.filter((candidate) => {
    const state = stateOf(candidate);
    if (!candidate.isListed || state === null || !states.includes(state)) return false;
    if (type && candidate.type !== type) return false;
    return !status || hasEndedWith(candidate, status);
  });
  const last = candidates.at(-1);
  const isLast = candidates.length < REDELIVERY_EXAMINED_MAX || !last;
  const next = isLast ? null : { at: requestedAt, id: last.eventId };
  const isWhole = after == null && next === null && states.includes("missed");
  const stored = new Set(candidates.map((candidate) => candidate.type));
  const sought = subscription.events.filter((each) => !type || each === type);
  const notStored = isWhole ? sought.filter((each) => !stored.has(each)) : [];
  if (dryRun) return { count: wanted.length, next, queue, notStored };
  const scheduled = wanted.map((one) => toScheduled(one, stateOf(one) === "retrying"));
  const { count } = await commit(withoutRetries(db), {
    count: fillSlots(id, scheduled, PRIORITY.scheduled, slotAt),
    slots: takeSlots(id, "replaySlotsUntil", scheduled.length, now),
    wait: endWait(id, now),
  });
  return { count, next, queue, notStored };
}

/**
 * Sends events by id, whatever their state; pending deliveries are brought forward. They are due in the slots of resends,
 * whatever replays have scheduled. The transaction is tried once.
 *
 * A person has asked for these requests, so they wait neither for spacing nor for `Retry-After`. Only the slots bound how
 * many are sent. A call is therefore rejected once the slots of `RESENDS_AHEAD_MS` are taken.
 *
 * @returns how many deliveries it made pending or brought forward.
 * @throws InputError for an event of another workspace, or of a type that the subscription does not list, or if too many
 *   resends are scheduled.
 */
async function resend(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  dryRun: boolean,
  now: number,
): Promise<number> {
  const named = JSON.stringify([...new Set(eventIds)]);
  const isNamed = sql`${events.id} IN (SELECT value FROM json_each(${named}))`;
  const slotAt = nextSlotAt("manualSlotsUntil", now);
  const found = await db.all<Candidate>(selectCandidates(subscriptionId, slotAt, isNamed));
  const known = new Set(found.filter(({ isListed }) => isListed).map(({ eventId }) => eventId));
  const unknown = eventIds.findIndex((id) => !known.has(id));
  if (unknown >= 0)
    throw unknownInput(
      ["eventIds", unknown],
      "no such event, or a test, or the subscription does not list its type",
    );
  // Pending deliveries come first, and keep their order.
  const waiting = found
    .filter((one) => isBroughtForward(one, now))
    .toSorted((a, b) => (a.dueAt ?? 0) - (b.dueAt ?? 0));
  const ended = found.filter(({ state }) => state !== "pending").toSorted(byEventId);
  const wanted = [
    ...waiting.map((one) => toScheduled(one, true)),
    ...ended.map((one) => toScheduled(one, false)),
  ];
  if (dryRun || wanted.length === 0) return wanted.length;
  const [{ nextSlotAt: startsAt } = { nextSlotAt: now }] = found;
  const waitSeconds = Math.ceil((startsAt - now - RESENDS_AHEAD_MS) / 1000);
  if (waitSeconds > 0)
    throw new InputError(
      "eventIds",
      `a minute of resends is scheduled already: try again in ${waitSeconds} s`,
      { retry_after_seconds: waitSeconds },
    );
  const { count } = await commit(withoutRetries(db), {
    count: fillSlots(subscriptionId, wanted, PRIORITY.manual, slotAt),
    slots: takeSlots(subscriptionId, "manualSlotsUntil", wanted.length, now),
  });
  return count;
}

/**
 * Whether a resend brings a pending delivery forward. It does if the delivery is due later than its slot. It also
 * does if the delivery has failed and is due now, because an attempt may be in flight. If that attempt fails, too,
 * the requested attempt still follows.
 */
function isBroughtForward(candidate: Candidate, now: number): boolean {
  const { state, priority, attempts, nextAttemptAt } = candidate;
  if (state !== "pending") return false;
  const waits = (nextAttemptAt ?? 0) > now && (nextAttemptAt ?? 0) >= candidate.nextSlotAt;
  return waits || ((attempts ?? 0) > 0 && priority !== PRIORITY.manual);
}

/** Whether the last attempt had this status, like `hasStatus` of the history in SQL. */
function hasEndedWith(candidate: Candidate, status: number | StatusClass): boolean {
  if (typeof status === "number") return candidate.status === status;
  if (status === "none") return candidate.outcome !== null && candidate.outcome !== "answered";
  return Math.floor((candidate.status ?? 0) / 100) === Number(status[0]);
}

function byEventId(a: Candidate, b: Candidate): number {
  return a.eventId < b.eventId ? -1 : 1;
}

/** @param waits whether the delivery is pending, and so keeps its attempts and its place in the retry schedule. */
function toScheduled(candidate: Candidate, waits: boolean): ResentEvent {
  const { eventId, storedState, attempts, dueAt } = candidate;
  return { eventId, storedState, attempts, dueAt, waits };
}

/**
 * Ends the current delay of a subscription whose requests are spaced, so that one may start now. The fencing counter
 * keeps a session that is sending from storing the delay again: its requests say nothing about the repaired endpoint.
 */
function endWait(subscriptionId: string, now: number): Part {
  const { id, blockedUntil, streakRetryAt, cancelEpoch } = subscriptions;
  return qb
    .update(subscriptions)
    .set({
      blockedUntil: sql`min(${blockedUntil}, ${now})`,
      streakRetryAt: sql`min(${streakRetryAt}, ${now})`,
      cancelEpoch: sql`${cancelEpoch} + 1`,
    })
    .where(and(eq(id, subscriptionId), gt(blockedUntil, now)));
}
