import { type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import {
  type DeliveryState,
  type RedeliveryState,
  type StatusClass,
  WebhookEvent,
} from "../contract/enumerations.ts";
import { eventIdAt, randomId } from "../contract/ids.ts";
import { InputError, unknownInput } from "../contract/input.ts";
import { REDELIVERIES_PER_HOUR, REPLAY_MAX_DAYS, RESENDS_PENDING_MAX } from "../contract/limits.ts";
import { DAY_MS, MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, withoutRetries } from "../db/client.ts";
import { TemporaryError } from "../db/errors.ts";
import { deliveries, events, PRIORITY, type Priority, subscriptions } from "../db/schema.ts";
import { deliveryState, listsType } from "../db/states.ts";
import type { QueueName } from "../delivery/wake.ts";
import {
  enableSubscription,
  findSubscription,
  type KnownSubscription,
  knownSubscription,
} from "../subscriptions/subscriptions.ts";
import { takeRedeliveries } from "../workspaces/workspaces.ts";
import { makePending } from "./make-pending.ts";
import {
  endIfDone,
  expectRoom,
  interrupt,
  interruptDisabled,
  isNotStopped,
  noteExamined,
  type Replay,
  stop,
  touch,
} from "./replays.ts";

/*
 * Sends events again. A resend sends the events that a caller names by id. A replay sends those of a time range, such
 * as all that a subscription did not receive while it was disabled.
 *
 * Both read the events with their deliveries, decide here which of them to send, and write that in one transaction.
 * The transaction (make-pending.ts) leaves out deliveries that have changed since they were read. Of a replay, it also
 * stores how far it is (replays.ts), so that any other call can continue or stop it.
 *
 * Both are due at once and begin the retry schedule of their deliveries anew. A resend comes first, and no circuit holds
 * it, because a person waits for its result. A replay comes last, so that new events do not wait for it.
 */

/** The states of events that a disabled subscription has not received. */
const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/**
 * How far the range of a call that enables a subscription extends beyond the time of the call. The subscription is
 * enabled a moment later, and misses events that are recorded until then. An event may also be dated by a clock that is
 * ahead.
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
  /** The replay that the call continues; absent if it begins one. */
  replayId?: string;
}

export interface Replayed {
  /** The number of events that were scheduled. */
  count: number;
  /** Where the next call for the range continues; null once the whole range has been examined. */
  next: Position | null;
  /** The replay; null for resends and counts. */
  replayId: string | null;
  /** The queue for its wake-up message. */
  queue: QueueName;
  /**
   * Listed event types of which the range has no stored event, if one call has examined all of it. An event that no
   * subscription of the workspace listed when it was recorded was never stored, so it is not among the missed ones.
   */
  notStored?: WebhookEvent[];
}

/**
 * Enables a disabled subscription again. With `since`, also begins a replay of the events since then that it has not
 * received, of the types that it lists. Events from before its creation are left out.
 *
 * A call that throws an InputError has not enabled it. What may reject the replay is checked before, and if it happens in
 * between, the call fails.
 *
 * @returns null, without enabling it, if events are to be sent to a subscription whose workspace has no access.
 * @throws InputError if there is no such subscription, too many of its replays have not ended, or the workspace has sent
 *   too many events again in an hour.
 * @throws TemporaryError if it is enabled, but the replay was rejected after that: another call has used up the events of
 *   the hour, or as many replays were begun, in between.
 */
export async function enableAndReplay(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
): Promise<Replayed | null> {
  if (since !== null) {
    const before = await findSubscription(db, subscriptionId, now);
    if (!before.accessGranted) return null;
    // Enabling a disabled subscription interrupts its replays, which makes room for another one.
    if (before.isActive) await expectRoom(db, subscriptionId);
    await countRedeliveries(db, before, 0, now);
  }
  // Not retried: a second try could enable a subscription that was disabled again in between.
  const { subscription } = await commit(withoutRetries(db), {
    interrupted: interruptDisabled(subscriptionId, now),
    enabled: enableSubscription(subscriptionId),
    subscription: knownSubscription(subscriptionId, now),
  });
  // If its access has just ended, there is nothing to send.
  if (since === null || !subscription.isActive)
    return { count: 0, next: null, replayId: null, queue: subscription.queue };
  const range = { since, until: null, states: UNDELIVERED };
  return replayRange(db, subscription, range, now, ENABLING_MAX_MS).catch((error) => {
    if (!(error instanceof InputError)) throw error;
    throw new TemporaryError(`enabled, but nothing is sent again: ${error.message}`);
  });
}

/**
 * Examines the next part of a replay, from where the last call has stopped.
 *
 * @returns null, without sending anything, if the subscription is disabled or its workspace has no access.
 * @throws InputError if the subscription was deleted, or the workspace has sent too many events again in an hour.
 */
export async function continueReplay(
  db: Database,
  { subscriptionId, id: replayId, cursor, createdAt, filter }: Replay,
  now: number,
): Promise<Replayed | null> {
  const subscription = await findSubscription(db, subscriptionId, now);
  if (!subscription.isActive) return null;
  if (cursor === null) return { count: 0, next: null, replayId, queue: subscription.queue };
  const range = { ...filter, after: { at: createdAt, id: cursor }, replayId };
  // By this clock, the replay may begin later. Its deliveries are not due before it begins (`waitingOf` in replays.ts), and its
  // end was stored, wherever that is.
  return replayRange(db, subscription, range, Math.max(now, createdAt), ENABLING_MAX_MS);
}

/**
 * Takes the next step of a replay for the scheduled job: examines a part, finishes a stop, ends it, or stops one that takes
 * too long. If the workspace has sent too many events again in this hour, the replay waits for the next one.
 *
 * @param now when the run of the job began.
 * @returns the queue for a wake-up message; null if none is needed.
 */
export async function advanceUnended(
  db: Database,
  replay: Replay,
  now: number,
  hasMore: () => boolean,
): Promise<QueueName | null> {
  const isTooOld = now - replay.createdAt >= REPLAY_MAX_DAYS * DAY_MS;
  if (replay.result === "stopped" || isTooOld) await stop(db, replay, now, hasMore);
  else if (replay.cursor === null) await endIfDone(db, replay, now);
  else {
    try {
      const part = await continueReplay(db, replay, Date.now());
      if (part) return part.queue;
      await interrupt(db, replay, now);
    } catch (error) {
      // Its subscription was deleted, and its row will be, or the workspace has sent too many events again in this hour.
      if (!(error instanceof InputError)) throw error;
      await touch(db, replay, now);
    }
  }
  return null;
}

/**
 * Sends events to a subscription again.
 *
 * @returns null, without sending anything, if the subscription is disabled or its workspace has no access.
 * @throws InputError for a subscription that does not exist, an event that it could not receive, too many resends, or
 *   too many events in an hour.
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
  const count = await resend(db, subscription, eventIds, dryRun, now);
  return { count, next: null, replayId: null, queue: subscription.queue };
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
  /** The state of the delivery, which may be cancelled although its row still says `pending`. */
  state: DeliveryState | null;
  priority: Priority | null;
  dueAt: number | null;
  attemptsMade: number | null;
  deliveredEarlier: 0 | 1 | null;
  outcome: string | null;
  status: number | null;
}

/**
 * Selects events of a subscription's workspace, each with its delivery to the subscription. SQLite looks up the
 * subscription, then the events by their primary key, then the delivery of each by its primary key: CROSS JOIN keeps
 * this order. So it reads the events that `which` selects, with one delivery each.
 *
 * @param which SQL condition on `events`, with an optional ORDER BY and LIMIT.
 */
function selectCandidates(subscriptionId: string, which: SQL): SQL {
  return sql`
    SELECT
      ${events.id} AS eventId,
      ${events.type} AS type,
      NOT ${events.test} AND ${listsType(events.type)} AS isListed,
      ${deliveryState()} AS state,
      ${deliveries.priority} AS priority,
      ${deliveries.attemptsMade} AS attemptsMade,
      ${deliveries.dueAt} AS dueAt,
      ${deliveries.deliveredEarlier} AS deliveredEarlier,
      ${deliveries.lastOutcome} AS outcome,
      ${deliveries.lastStatus} AS status
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
 * @returns null if the event is sent anyway, because its last attempt has not failed.
 */
function stateOf({ state, priority, deliveredEarlier }: Candidate): RedeliveryState | null {
  if (state === null) return "missed";
  if (state === "test") return null;
  if (state !== "pending") return deliveredEarlier ? "delivered" : state;
  return priority === PRIORITY.retry ? "retrying" : null;
}

/**
 * Makes a part of a range pending, oldest event first. The transaction is tried once. If its reply is lost, a repeated
 * call leaves out the events that the first one has made pending.
 *
 * @param laterMs how far the range extends beyond the time of the first call.
 */
async function replayRange(
  db: Database,
  subscription: KnownSubscription,
  { since, until, states, type, status, after, dryRun, replayId }: Range,
  now: number,
  laterMs = 0,
): Promise<Replayed> {
  const { id, createdAt, queue } = subscription;
  // The range does not move on with the calls that continue it. Otherwise, it might never end.
  const requestedAt = Math.min(after?.at ?? now, now);
  const from = eventIdAt(Math.max(since, createdAt));
  // A cursor does not lead out of the range that the caller names.
  const start = after && after.id > from ? after.id : from;
  const endsAt = Math.min(until ?? Number.POSITIVE_INFINITY, requestedAt + laterMs + 1);
  const end = eventIdAt(endsAt);
  const isInRange = sql`${events.id} > ${start} AND ${events.id} < ${end}
    ORDER BY ${events.id} LIMIT ${REDELIVERY_EXAMINED_MAX}`;
  const candidates = await db.all<Candidate>(selectCandidates(id, isInRange));
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
  // A range without anything to send is no replay.
  const isNothing = wanted.length === 0 && next === null && !replayId;
  if (dryRun || isNothing) return { count: wanted.length, next, replayId: null, queue, notStored };
  if (!replayId) await expectRoom(db, id);
  if (wanted.length > 0) await countRedeliveries(db, subscription, wanted.length, now);
  const replay = {
    id: replayId ?? randomId("replay"),
    filter: { since, until: endsAt, states, type: type ?? null, status: status ?? null },
    examined: { from: after?.id ?? null, to: next?.id ?? null, requestedAt },
  };
  const { count } = await commit(withoutRetries(db), {
    count: makePending(id, wanted, replay.id, now, isNotStopped(replay.id)),
    ...noteExamined(id, replay, wanted, now),
  });
  return { count, next, replayId: replay.id, queue, notStored };
}

/**
 * Sends events by id, whatever their state. The transaction is tried once.
 *
 * @returns how many deliveries it made pending or brought forward.
 * @throws InputError for an event of another workspace, or of a type that the subscription does not list, or if too many
 *   resends are pending.
 */
async function resend(
  db: Database,
  subscription: KnownSubscription,
  eventIds: readonly string[],
  dryRun: boolean,
  now: number,
): Promise<number> {
  const { id: subscriptionId } = subscription;
  const named = JSON.stringify([...new Set(eventIds)]);
  const isNamed = sql`${events.id} IN (SELECT value FROM json_each(${named}))`;
  const found = await db.all<Candidate>(selectCandidates(subscriptionId, isNamed));
  const known = new Set(found.filter(({ isListed }) => isListed).map(({ eventId }) => eventId));
  const unknown = eventIds.findIndex((id) => !known.has(id));
  if (unknown >= 0)
    throw unknownInput(
      ["eventIds", unknown],
      "no such event, or a test, or the webhook does not list its type",
    );
  const wanted = found.filter(
    ({ state, priority }) => state !== "pending" || priority !== PRIORITY.resend,
  );
  if (dryRun || wanted.length === 0) return wanted.length;
  // Calls at once may each find room before any of them writes. So the transaction that makes them pending checks it.
  const resends = countResends(subscriptionId);
  const room = RESENDS_PENDING_MAX - wanted.length;
  const isWithin = sql`${resends} <= ${room}`;
  await countRedeliveries(db, subscription, wanted.length, now);
  const { before, count } = await commit(withoutRetries(db), {
    before: qb.all<{ pending: number }>(sql`SELECT ${resends} AS pending`),
    count: makePending(subscriptionId, wanted, null, now, isWithin),
  });
  const [{ pending } = { pending: 0 }] = before;
  if (pending <= room) return count;
  // Nothing was sent, so nothing counts.
  await countRedeliveries(db, subscription, -wanted.length, now);
  throw new InputError(
    "eventIds",
    `${pending} resends of the webhook are pending, and ${RESENDS_PENDING_MAX} may be: try again later`,
    { retry_after_seconds: RETRY_RESEND_SECONDS },
  );
}

/**
 * Counts events that are about to be sent again; 0 only checks whether any may be.
 *
 * @throws InputError if the workspace has sent too many events again in an hour.
 */
async function countRedeliveries(
  db: Database,
  { workspaceId }: KnownSubscription,
  count: number,
  now: number,
): Promise<void> {
  const waitSeconds = await commit(withoutRetries(db), takeRedeliveries(workspaceId, count, now));
  if (waitSeconds !== null)
    throw new InputError(
      "webhookId",
      `its workspace has sent ${REDELIVERIES_PER_HOUR} events again in an hour: try again in ${waitSeconds} s`,
      { retry_after_seconds: waitSeconds },
    );
}

/** The delay after which a caller with too many pending resends may try again, in seconds. */
const RETRY_RESEND_SECONDS = 10;

/**
 * SQL expression: the number of pending resends of a subscription, counted in the index. Those that are cancelled may count
 * for a while.
 */
function countResends(subscriptionId: string): SQL<number> {
  return sql`(SELECT count(*) FROM json_each(${JSON.stringify(WebhookEvent.options)}) AS type
    CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptionId} AND ${deliveries.state} = 'pending'
      AND ${deliveries.type} = type.value AND ${deliveries.priority} = ${PRIORITY.resend})`;
}

/** Whether the last attempt had this status, like `hasStatus` of the history in SQL. */
function hasEndedWith(candidate: Candidate, status: number | StatusClass): boolean {
  if (typeof status === "number") return candidate.status === status;
  if (status === "none") return candidate.outcome !== null && candidate.outcome !== "answered";
  return Math.floor((candidate.status ?? 0) / 100) === Number(status[0]);
}
