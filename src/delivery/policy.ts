/*
 * Flow control: how fast a subscription's endpoint is sent to, and what it is sent next. Five rules, in pure
 * functions; time and randomness are arguments. SQL only looks up what is decided here (round.ts).
 *
 * 1. Retry schedule. Each delivery has its own (`reschedule`).
 * 2. Adaptive concurrency (AIMD): one to six requests at once, one while the endpoint fails (`adjustPace`).
 * 3. Failure spacing. A streak counts the different events that failed one after the other, whatever their
 *    types; any success ends it. From the fifth on, requests are spaced, up to a minute apart. An endpoint that
 *    is busy or unavailable is spaced from the first failure on, up to a minute or ten (`spacingMs`).
 * 4. Turns. While requests are spaced, event types take turns; within a type, the newest and the oldest
 *    untried event alternate, and only then comes what failed before (`chooseNext`).
 * 5. The end of a streak. Each delivery that has only failed within it is due at once, one time
 *    (`retryFailedAt` and `priorityAfterFailure`).
 */
import type { WebhookEvent } from "../contract/enumerations.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  FAILING_SPACING_SECONDS,
  OUTAGE_SPACING_SECONDS,
  PROBE_INTERVAL_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  TOLERATED_FAILURES,
} from "../contract/limits.ts";
import type { Priority, Rejections, Streak } from "../db/schema.ts";
import { type AttemptOutcome, statusOf, succeeded } from "./outcome.ts";

/**
 * Maximum requests in flight for a subscription, and in one invocation: the runtime lets six requests wait
 * for their response headers. A dispatch that serves several subscriptions keeps one of these free.
 */
export const CONCURRENCY_MAX = 6;
/** A response that takes this long counts as slow. */
export const SLOW_RESPONSE_MS = 2_000;
/** A `retryFailedAt` that is later than any time, so that only the retry schedule decides. */
export const NEVER = Number.MAX_SAFE_INTEGER;

/** How fast a subscription may be sent to; times are Unix milliseconds. */
export interface Pace {
  /** Maximum requests in flight. */
  concurrency: number;
  /** Whether its wake-up messages go to the slow queue, so that it delays no other subscription. */
  slow: boolean;
  /** The failures since the last success; null if there are none. */
  streak: Streak | null;
  /** While requests are spaced, when the next one may start; else 0. */
  blockedUntil: number;
  /** Deliveries that failed only within the streak are due from this time on, if not by their own schedule. */
  retryFailedAt: number;
}

/** Whether the endpoint fails, so that it gets one request at a time, spaced from the last. A success ends it. */
export function isSpaced({ blockedUntil }: Pick<Pace, "blockedUntil">): boolean {
  return blockedUntil > 0;
}

/** The pace of a subscription that is new, was enabled again, or has another URL. */
export const INITIAL_PACE: Pace = {
  concurrency: 1,
  slow: false,
  streak: null,
  blockedUntil: 0,
  retryFailedAt: 0,
};

/** The last attempts by event type. They inform administrators and decide about disabling; they pace nothing. */
export interface TypeRecord {
  /** The event types of which nothing was accepted since an event failed. */
  rejections: Rejections;
  /** The event types of which the last attempt succeeded. */
  acceptedTypes: WebhookEvent[];
}

export const INITIAL_TYPE_RECORD: TypeRecord = { rejections: {}, acceptedTypes: [] };

/** The queue that carries a subscription's wake-up messages. */
export type QueueName = "fast" | "slow";

export function queueOf({ slow }: Pick<Pace, "slow">): QueueName {
  return slow ? "slow" : "fast";
}

/** A pending delivery, as far as flow control needs to know it; times are Unix milliseconds. */
export interface PendingDelivery {
  eventId: string;
  type: WebhookEvent;
  /** 0 if it is untried, 1 if it was sent by hand, 2 if it failed only within the streak; else 3. */
  priority: Priority;
  /** Attempts on its retry schedule so far. */
  attempts: number;
  dueAt: number;
  /** If it was sent by hand before it was due: when its retry schedule makes it due. */
  scheduledAt: number | null;
  /** When its last attempt started; null if there was none. */
  lastAt: number | null;
}

/** A finished attempt; times are Unix milliseconds. */
export interface Attempt {
  delivery: PendingDelivery;
  outcome: AttemptOutcome;
  startedAt: number;
  endedAt: number;
}

/** Classes of unsuccessful outcomes, by the state of the endpoint that they show. */
type Failure = "rejected" | "busy" | "unavailable";

function failureOf(outcome: AttemptOutcome): Failure {
  if (outcome.kind !== "answered") return "unavailable";
  return outcome.status === 429 || outcome.status === 503 ? "busy" : "rejected";
}

/** Returns the pace after one more attempt. A manual send that fails does not change it. */
export function adjustPace(pace: Pace, attempt: Attempt): Pace {
  if (succeeded(attempt.outcome)) return paceAfterSuccess(pace, attempt);
  return attempt.delivery.priority === 1 ? pace : paceAfterFailure(pace, attempt);
}

function paceAfterSuccess(pace: Pace, { startedAt, endedAt }: Attempt): Pace {
  const isSlow = endedAt - startedAt >= SLOW_RESPONSE_MS;
  const increased = isSpaced(pace) ? 1 : Math.min(pace.concurrency + 1, CONCURRENCY_MAX);
  const concurrency = isSlow ? halved(pace.concurrency) : increased;
  return {
    concurrency,
    // A slow endpoint returns to the fast queue only at full concurrency. After a single fast response, an endpoint
    // that hangs every other time would hold up that queue.
    slow: (pace.slow || isSlow) && concurrency < CONCURRENCY_MAX,
    streak: null,
    blockedUntil: 0,
    retryFailedAt: pace.streak === null ? pace.retryFailedAt : endedAt,
  };
}

function paceAfterFailure(pace: Pace, attempt: Attempt): Pace {
  const { delivery, outcome, startedAt, endedAt } = attempt;
  const isSlow = failureOf(outcome) === "unavailable" || endedAt - startedAt >= SLOW_RESPONSE_MS;
  const slow = pace.slow || isSlow;
  // The attempt started before the endpoint was blocked, so its outcome says nothing about the endpoint since then.
  const wasInFlight = startedAt < pace.blockedUntil;
  const streak = extendStreak(pace.streak, attempt, wasInFlight);
  if (wasInFlight) return { ...pace, slow, streak };
  const waitMs = spacingMs(streak, outcome);
  if (waitMs === 0 && !isSpaced(pace)) {
    // A retry that fails shows nothing new about the endpoint.
    const concurrency = delivery.attempts === 0 ? halved(pace.concurrency) : pace.concurrency;
    return { concurrency, slow, streak, blockedUntil: 0, retryFailedAt: NEVER };
  }
  const blockedUntil = waitMs === 0 ? pace.blockedUntil : endedAt + waitMs;
  // Where few events are recorded, retries notice the end of an outage.
  const retryFailedAt = Math.max(blockedUntil, endedAt + PROBE_INTERVAL_MS);
  return { concurrency: 1, slow, streak, blockedUntil, retryFailedAt };
}

/** Whether the delivery has already failed within the streak. */
function hasFailedIn(streak: Streak | null, { lastAt }: PendingDelivery): boolean {
  return streak !== null && lastAt !== null && lastAt >= streak.startedAt;
}

/** Adds a failed attempt to the streak. An event that has already failed in it lengthens no spacing. */
function extendStreak(
  streak: Streak | null,
  { delivery, outcome, startedAt }: Attempt,
  wasInFlight: boolean,
): Streak {
  const { type, priority } = delivery;
  const { events = 0, attempts = 0, outageStep = 0, turns = {} } = streak ?? {};
  const isNew = !hasFailedIn(streak, delivery);
  const isOutage = failureOf(outcome) !== "rejected";
  const lengthens = isOutage && !wasInFlight && (isNew || outageStep === 0);
  const triedNewest = turns[type]?.triedNewest ?? false;
  return {
    startedAt: Math.min(streak?.startedAt ?? startedAt, startedAt),
    events: isNew ? events + 1 : events,
    attempts: attempts + 1,
    outageStep: lengthens ? outageStep + 1 : outageStep,
    turns: {
      ...turns,
      [type]: { at: startedAt, triedNewest: priority === 0 ? !triedNewest : triedNewest },
    },
  };
}

/** How long the next request waits after a failure, in milliseconds; 0 if it need not wait. */
function spacingMs({ events, outageStep }: Streak, outcome: AttemptOutcome): number {
  const failure = failureOf(outcome);
  if (failure !== "rejected") {
    const seconds = stepOf(OUTAGE_SPACING_SECONDS[failure], outageStep - 1);
    return Math.max(seconds, requestedWaitSeconds(outcome)) * 1000;
  }
  return events < TOLERATED_FAILURES
    ? 0
    : stepOf(FAILING_SPACING_SECONDS, events - TOLERATED_FAILURES) * 1000;
}

function stepOf(seconds: readonly number[], index: number): number {
  return seconds[Math.min(index, seconds.length - 1)] ?? 0;
}

/** The delay that a busy endpoint requests in `Retry-After`, up to a maximum. */
function requestedWaitSeconds(outcome: AttemptOutcome): number {
  const asked = outcome.kind === "answered" ? (outcome.retryAfterSeconds ?? 0) : 0;
  return Math.min(asked, RETRY_AFTER_MAX_SECONDS);
}

function halved(concurrency: number): number {
  return Math.max(1, Math.floor(concurrency / 2));
}

/**
 * Chooses the delivery to send next while requests are spaced. A type that is accepted must not wait for one that is
 * rejected, so types take turns. The newest event finds out whether the endpoint accepts again; the oldest ones
 * work off a backlog.
 *
 * @param heads due deliveries: for each event type and priority the one that is due first, and for each type the
 *   untried one that is due last.
 */
export function chooseNext<D extends PendingDelivery>(
  { streak, blockedUntil }: Pace,
  heads: readonly D[],
  now: number,
): D | undefined {
  const byDueTime = heads.toSorted((a, b) => a.dueAt - b.dueAt || compare(a.eventId, b.eventId));
  const manual = byDueTime.find(({ priority }) => priority === 1);
  if (manual || now < blockedUntil) return manual;
  const lastTurn = ({ type }: D) => streak?.turns[type]?.at ?? 0;
  const [first] = byDueTime.toSorted((a, b) => lastTurn(a) - lastTurn(b));
  const ofType = byDueTime.filter(({ type }) => type === first?.type);
  const untried = ofType.filter(({ priority }) => priority === 0);
  const isNewestNext = first && !streak?.turns[first.type]?.triedNewest;
  return (isNewestNext ? untried.at(-1) : untried[0]) ?? ofType[0];
}

const compare = (a: string, b: string) => (a < b ? -1 : Number(a > b));

/** A delivery's new state after an attempt. */
export interface Rescheduled {
  state: "delivered" | "pending" | "exhausted";
  attempts: number;
  priority: Priority;
  /** When it is due again; when the attempt ended, if it is not pending. */
  dueAt: number;
}

/**
 * Decides the new state of a delivery after an attempt. A retry that fails before its scheduled time does not
 * count, so that no early attempt shortens the retry schedule. The first attempt always counts.
 *
 * @param pace the pace before the attempt.
 * @param random between 0 and 1; sets the jitter.
 */
export function reschedule(pace: Pace, attempt: Attempt, random: number): Rescheduled {
  const { delivery, outcome, startedAt, endedAt } = attempt;
  const attempts = delivery.attempts + 1;
  if (succeeded(outcome)) return { state: "delivered", attempts, priority: 0, dueAt: endedAt };
  const priority = priorityAfterFailure(pace, delivery);
  const scheduledAt = delivery.scheduledAt ?? delivery.dueAt;
  if (delivery.attempts > 0 && startedAt < scheduledAt)
    return { state: "pending", attempts: delivery.attempts, priority, dueAt: scheduledAt };
  const seconds = RETRY_WAITS_SECONDS[attempts - 1];
  if (seconds === undefined) return { state: "exhausted", attempts, priority, dueAt: endedAt };
  // Jitter only lengthens a delay, so that the schedule outlasts the time after which a subscription is disabled.
  const waitMs = Math.round(seconds * 1000 * (1 + RETRY_JITTER * random));
  return { state: "pending", attempts, priority, dueAt: endedAt + waitMs };
}

/** Returns 2 while the delivery has only failed within the current streak, and 3 afterwards. */
function priorityAfterFailure(
  { streak }: Pace,
  delivery: PendingDelivery,
): Extract<Priority, 2 | 3> {
  if (delivery.attempts === 0) return 2;
  return delivery.priority !== 3 && hasFailedIn(streak, delivery) ? 2 : 3;
}

/** Returns the record of each event type after one more attempt. */
export function recordType(known: TypeRecord, attempt: Attempt): TypeRecord {
  const { delivery, outcome, endedAt } = attempt;
  const { type, priority } = delivery;
  if (succeeded(outcome)) {
    if (!known.rejections[type] && known.acceptedTypes.includes(type)) return known;
    const { [type]: _, ...rejections } = known.rejections;
    return { rejections, acceptedTypes: [...new Set([...known.acceptedTypes, type])].toSorted() };
  }
  if (priority === 1) return known;
  const rejection = {
    since: known.rejections[type]?.since ?? endedAt,
    outcome: outcome.kind,
    status: statusOf(outcome),
  };
  return {
    rejections: { ...known.rejections, [type]: rejection },
    acceptedTypes: known.acceptedTypes.filter((accepted) => accepted !== type),
  };
}

/**
 * Whether a failed attempt disables its subscription: nothing has succeeded for three days, and the endpoint is
 * unavailable or accepts no event type that is listed. An endpoint that accepts one type is not disabled
 * because of another.
 *
 * @param listed the event types of the subscription.
 */
export function isDead(
  { streak }: Pace,
  { acceptedTypes }: TypeRecord,
  { outcome, endedAt }: Attempt,
  listed: readonly WebhookEvent[],
): boolean {
  if (streak === null || streak.startedAt > endedAt - DISABLE_AFTER_MS) return false;
  if (streak.attempts < DISABLE_AFTER_FAILURES || streak.events < 2) return false;
  return (
    failureOf(outcome) === "unavailable" || !listed.some((type) => acceptedTypes.includes(type))
  );
}
