/*
 * Flow control: how fast requests are sent to a subscription's endpoint, and which delivery comes next. It is in pure
 * functions, whose time and randomness are arguments; SQL applies the decisions that are stored (due.ts, round.ts). The
 * rules, with their numbers, are in docs/deliveries.md:
 *
 * 1. Adaptive concurrency (AIMD): `adjustPace`.
 * 2. Failure spacing: `extendStreak` and `spacingMs`.
 * 3. Turns: `chooseNext` while requests are spaced, and otherwise, in SQL, `claimOrder` (due.ts). `noteTypeOutcome` decides
 *    how long an event type yields.
 * 4. Retry schedule: `reschedule`.
 * 5. The end of a streak: `priorityAfterFailure` and `streakRetryAt`. Suppose that a delivery has failed four times, last
 *    at 12:06, and that its retry schedule makes it due at 12:36. At 12:07, another event succeeds, so the delivery is
 *    due at once. If it fails then, it is due at 12:36 as before.
 * 6. Disabling: `isDead`.
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
  SPACED_FROM_EVENTS,
} from "../contract/limits.ts";
import { PRIORITY, type Priority, type Rejections, type Streak } from "../db/schema.ts";
import { type AttemptOutcome, type Outcome, statusOf, succeeded } from "./outcome.ts";

/** Maximum requests in flight for a subscription, which one invocation can make at once (`CONNECTIONS_MAX`). */
export const CONCURRENCY_MAX = 6;
/** A response that takes this long counts as slow. */
export const SLOW_RESPONSE_MS = 2_000;
/** A `streakRetryAt` that never comes, so that only the retry schedule decides. */
export const NEVER = Number.MAX_SAFE_INTEGER;

/** How fast a subscription may be sent to; times are Unix milliseconds. */
export interface Pace {
  /** Maximum requests in flight. */
  concurrency: number;
  /** Whether its wake-up messages go to the slow queue, so that it delays no other subscription. */
  slow: boolean;
  /** The failures since the last success; null if there are none. */
  streak: Streak | null;
  /** While requests are spaced, when the next one may start. It may be past: requests stay spaced until it is 0. */
  blockedUntil: number;
  /**
   * When deliveries of priority `inStreak` are due, if not earlier by their retry schedule:
   *
   * - without a streak, when the last one ended, so that they are all due;
   * - during a streak, `NEVER`;
   * - once its failures space the requests, five minutes after the last one, or `blockedUntil` if that is later;
   * - if a replay has ended the wait since then, the time of the replay.
   */
  streakRetryAt: number;
}

/**
 * Whether the endpoint gets one request at a time, spaced from the last one, because it fails, or because an attempt
 * could not be made. A success ends it.
 */
export function isSpaced({ blockedUntil }: Pick<Pace, "blockedUntil">): boolean {
  return blockedUntil > 0;
}

/** The pace of a subscription that is new, was enabled again, or has another URL. */
export const INITIAL_PACE: Pace = {
  concurrency: 1,
  slow: false,
  streak: null,
  blockedUntil: 0,
  streakRetryAt: 0,
};

/** Returns the columns of a subscription that store a pace. */
export function paceColumns(pace: Pace) {
  const { streak } = pace;
  return { ...pace, failingSince: streak?.startedAt ?? null, failures: streak?.attempts ?? 0 };
}

/** The names of these columns. */
export const PACE_COLUMNS = Object.keys(paceColumns(INITIAL_PACE)) as (keyof ReturnType<
  typeof paceColumns
>)[];

/**
 * The last attempts by event type. They inform administrators, decide about disabling, and order what is sent
 * (`yieldsUntil`). They do not change the pace.
 */
export interface TypeOutcomes {
  /** The event types of which nothing was accepted since an event failed. */
  rejections: Rejections;
  /** The event types of which the last attempt succeeded, failed manual sends aside. */
  acceptedTypes: WebhookEvent[];
}

export const INITIAL_TYPE_OUTCOMES: TypeOutcomes = { rejections: {}, acceptedTypes: [] };

/** The queue that carries a subscription's wake-up messages. */
export type QueueName = "fast" | "slow";

export function queueOf({ slow }: Pick<Pace, "slow">): QueueName {
  return slow ? "slow" : "fast";
}

/** The fields of a pending delivery that flow control needs; times are Unix milliseconds. */
export interface PendingDelivery {
  eventId: string;
  type: WebhookEvent;
  priority: Priority;
  /** Attempts on its retry schedule so far. */
  attempts: number;
  /** All attempts so far, which tells whether the next one has been recorded. */
  attemptsMade: number;
  dueAt: number;
  /** When its retry schedule makes it due, if a resend or a replay has brought it forward; otherwise null. */
  scheduledAt: number | null;
  /** When its last attempt started; null if there was none. */
  lastAt: number | null;
}

/** A finished attempt; times are Unix milliseconds. */
export interface Attempt<OutcomeOfAttempt extends AttemptOutcome = AttemptOutcome> {
  delivery: PendingDelivery;
  outcome: OutcomeOfAttempt;
  startedAt: number;
  /** Whether the subscription was blocked when the attempt started. Only a manual send may start then. */
  startedWhileBlocked: boolean;
  endedAt: number;
}

/**
 * Classes of unsuccessful outcomes, by what they show of the endpoint. `rejected` is any status but 429 and 503, even
 * 500: it may concern this event only. `busy` and `unavailable` are outages, which concern all events.
 */
type Failure = "rejected" | "busy" | "unavailable";

function failureOf(outcome: Outcome): Failure {
  // Timed out, unreachable, or refused because the URL leads to a private address.
  if (outcome.kind !== "answered") return "unavailable";
  return outcome.status === 429 || outcome.status === 503 ? "busy" : "rejected";
}

/**
 * Returns the pace after one more request. A manual send that fails only moves the subscription to the slow queue, if the
 * endpoint is slow or unavailable.
 */
export function adjustPace(pace: Pace, attempt: Attempt<Outcome>): Pace {
  if (succeeded(attempt.outcome)) return paceAfterSuccess(pace, attempt);
  if (attempt.delivery.priority !== PRIORITY.manual) return paceAfterFailure(pace, attempt);
  return { ...pace, slow: pace.slow || isSlowFailure(attempt) };
}

function isSlowFailure({ outcome, startedAt, endedAt }: Attempt<Outcome>): boolean {
  return failureOf(outcome) === "unavailable" || endedAt - startedAt >= SLOW_RESPONSE_MS;
}

/**
 * Whether a wait of the subscription began during the attempt: it started before `blockedUntil`, but the subscription was
 * not blocked then.
 */
function waitBeganDuring({ blockedUntil }: Pace, attempt: Attempt): boolean {
  return attempt.startedAt < blockedUntil && !attempt.startedWhileBlocked;
}

function paceAfterSuccess(pace: Pace, attempt: Attempt<Outcome>): Pace {
  const { startedAt, endedAt } = attempt;
  const isSlow = endedAt - startedAt >= SLOW_RESPONSE_MS;
  const increased = isSpaced(pace) ? 1 : Math.min(pace.concurrency + 1, CONCURRENCY_MAX);
  const concurrency = isSlow ? halved(pace.concurrency) : increased;
  return {
    concurrency,
    // A slow endpoint returns to the fast queue only at full concurrency. After a single fast response, an endpoint
    // that hangs every other time would hold up that queue.
    slow: (pace.slow || isSlow) && concurrency < CONCURRENCY_MAX,
    streak: null,
    // A wait that began during the request still counts, because the endpoint may have asked for it in `Retry-After`.
    blockedUntil: waitBeganDuring(pace, attempt) ? pace.blockedUntil : 0,
    streakRetryAt: pace.streak === null ? pace.streakRetryAt : endedAt,
  };
}

function paceAfterFailure(pace: Pace, attempt: Attempt<Outcome>): Pace {
  const { delivery, outcome, endedAt } = attempt;
  const slow = pace.slow || isSlowFailure(attempt);
  const streak = extendStreak(pace, attempt);
  if (waitBeganDuring(pace, attempt)) {
    // It says nothing about the endpoint since it was blocked, except how long the endpoint asks to be left alone.
    const askedUntil = endedAt + requestedWaitSeconds(outcome) * 1000;
    const blockedUntil = Math.max(pace.blockedUntil, askedUntil);
    const streakRetryAt = nextProbeAt(blockedUntil, attempt);
    return { ...pace, slow, streak, blockedUntil, streakRetryAt };
  }
  const waitMs = spacingMs(streak, outcome);
  if (waitMs === 0 && !isSpaced(pace)) {
    // A retry that fails shows nothing new about the endpoint.
    const concurrency = delivery.attempts === 0 ? halved(pace.concurrency) : pace.concurrency;
    return { concurrency, slow, streak, blockedUntil: 0, streakRetryAt: NEVER };
  }
  // With fewer than `SPACED_FROM_EVENTS` failed events, a rejection needs no wait of its own. Requests that are already
  // spaced stay spaced, one at a time.
  const blockedUntil = waitMs === 0 ? pace.blockedUntil : endedAt + waitMs;
  const streakRetryAt = nextProbeAt(blockedUntil, attempt);
  return { concurrency: 1, slow, streak, blockedUntil, streakRetryAt };
}

/** When, after a failure, what failed in the streak is due: the `streakRetryAt` while requests are spaced. */
function nextProbeAt(blockedUntil: number, { endedAt }: Attempt): number {
  return Math.max(blockedUntil, endedAt + PROBE_INTERVAL_MS);
}

/** Whether the delivery has already failed within the streak. */
function hasFailedIn(streak: Streak | null, { lastAt }: PendingDelivery): boolean {
  return streak !== null && lastAt !== null && lastAt >= streak.startedAt;
}

/** Adds a failed attempt to the streak. An event that has already failed in it does not lengthen the spacing. */
function extendStreak(pace: Pace, attempt: Attempt<Outcome>): Streak {
  const { streak } = pace;
  const { delivery, outcome, startedAt } = attempt;
  const { type, priority } = delivery;
  const { events = 0, attempts = 0, outageStep = 0, turns = {} } = streak ?? {};
  const isNew = !hasFailedIn(streak, delivery);
  const isOutage = failureOf(outcome) !== "rejected";
  // The first failure of an outage begins its spacing, even if the event was rejected before.
  const lengthens = isOutage && !waitBeganDuring(pace, attempt) && (isNew || outageStep === 0);
  const isOldestNext = turns[type]?.isOldestNext ?? false;
  const isUntried = priority === PRIORITY.untried;
  return {
    startedAt: Math.min(streak?.startedAt ?? startedAt, startedAt),
    events: isNew ? events + 1 : events,
    attempts: attempts + 1,
    outageStep: lengthens ? outageStep + 1 : outageStep,
    unavailableSince:
      failureOf(outcome) === "unavailable" ? (streak?.unavailableSince ?? startedAt) : null,
    turns: {
      ...turns,
      [type]: { at: startedAt, isOldestNext: isUntried ? !isOldestNext : isOldestNext },
    },
  };
}

/** How long the next request waits after a failure, in milliseconds; 0 if it need not wait. */
function spacingMs({ events, outageStep }: Streak, outcome: Outcome): number {
  const failure = failureOf(outcome);
  if (failure !== "rejected") {
    const seconds = stepOf(OUTAGE_SPACING_SECONDS[failure], outageStep - 1);
    return Math.max(seconds, requestedWaitSeconds(outcome)) * 1000;
  }
  return events < SPACED_FROM_EVENTS
    ? 0
    : stepOf(FAILING_SPACING_SECONDS, events - SPACED_FROM_EVENTS) * 1000;
}

function stepOf(seconds: readonly number[], index: number): number {
  return seconds[Math.min(index, seconds.length - 1)] ?? 0;
}

/** The delay that a busy endpoint requests in `Retry-After`, up to a maximum; 0 if there is none. */
function requestedWaitSeconds(outcome: Outcome): number {
  if (outcome.kind !== "answered" || failureOf(outcome) !== "busy") return 0;
  return Math.min(outcome.retryAfterSeconds ?? 0, RETRY_AFTER_MAX_SECONDS);
}

function halved(concurrency: number): number {
  return Math.max(1, Math.floor(concurrency / 2));
}

/**
 * Chooses the delivery to send next while requests are spaced. A type that is accepted must not wait for one that is
 * rejected, so types take turns. A type that yields (`yieldsUntil`) comes after all that do not. The newest event finds
 * out whether the endpoint accepts again; the oldest ones work off a backlog.
 *
 * @param heads due deliveries: for each event type and priority the one that is due first, and for each type the
 *   untried one that is due last.
 */
export function chooseNext<D extends PendingDelivery>(
  { streak, blockedUntil, rejections }: Pace & Pick<TypeOutcomes, "rejections">,
  heads: readonly D[],
  now: number,
): D | undefined {
  const byDueTime = heads.toSorted((a, b) => a.dueAt - b.dueAt || compare(a.eventId, b.eventId));
  const manual = byDueTime.find(({ priority }) => priority === PRIORITY.manual);
  if (manual || now < blockedUntil) return manual;
  const yields = ({ type }: D) => Number((rejections[type]?.yieldsUntil ?? 0) > now);
  const lastTurn = ({ type }: D) => streak?.turns[type]?.at ?? 0;
  const [first] = byDueTime.toSorted((a, b) => yields(a) - yields(b) || lastTurn(a) - lastTurn(b));
  const ofType = byDueTime.filter(({ type }) => type === first?.type);
  const untried = ofType.filter(({ priority }) => priority === PRIORITY.untried);
  const isOldestNext = first && streak?.turns[first.type]?.isOldestNext;
  return (isOldestNext ? untried[0] : untried.at(-1)) ?? ofType[0];
}

const compare = (a: string, b: string) => (a < b ? -1 : Number(a > b));

/** A delivery's new state after an attempt. */
export interface Rescheduled {
  state: "delivered" | "pending" | "exhausted";
  attempts: number;
  priority: Priority;
  /** When it is due again; null if it is not pending any more. */
  dueAt: number | null;
  /** When it was delivered or exhausted; null if it is pending. */
  settledAt: number | null;
}

/**
 * Decides the new state of a delivery after an attempt. A retry that fails before its scheduled time does not
 * count, so that no early attempt shortens the retry schedule. The first attempt always counts.
 *
 * @param pace the pace before it was adjusted to this attempt.
 * @param random between 0 and 1; sets the jitter.
 */
export function reschedule(pace: Pace, attempt: Attempt, random: number): Rescheduled {
  const { delivery, outcome, startedAt, endedAt } = attempt;
  const attempts = delivery.attempts + 1;
  const settled = { attempts, dueAt: null, settledAt: endedAt };
  if (succeeded(outcome)) return { state: "delivered", priority: delivery.priority, ...settled };
  const priority = priorityAfterFailure(pace, attempt);
  const pending = { state: "pending", priority, settledAt: null } as const;
  const scheduledAt = delivery.scheduledAt ?? delivery.dueAt;
  if (delivery.attempts > 0 && startedAt < scheduledAt)
    return { ...pending, attempts: delivery.attempts, dueAt: scheduledAt };
  const seconds = RETRY_WAITS_SECONDS[attempts - 1];
  if (seconds === undefined) return { state: "exhausted", priority, ...settled };
  // Jitter only lengthens a delay, so that the schedule outlasts the time after which a subscription is disabled.
  const waitMs = Math.round(seconds * 1000 * (1 + RETRY_JITTER * random));
  return { ...pending, attempts, dueAt: endedAt + waitMs };
}

/**
 * Returns `inStreak` while the delivery has only failed within the current streak, or after a manual send that failed
 * within it, and `scheduled` otherwise. Either way, it keeps its own retry schedule.
 */
function priorityAfterFailure({ streak }: Pace, { delivery, outcome }: Attempt): Priority {
  // An event that cannot be read says nothing about the endpoint, so the end of a streak does not make it due. Otherwise,
  // while requests are spaced, it would be due again at once after each attempt, because none of them moves
  // `streakRetryAt`.
  if (outcome.kind === "unreadable") return PRIORITY.scheduled;
  // Somebody wants it soon, whatever failed before. A manual send that fails begins no streak.
  if (delivery.priority === PRIORITY.manual)
    return streak === null ? PRIORITY.scheduled : PRIORITY.inStreak;
  // The first failure begins a streak, or falls within one.
  if (delivery.attempts === 0) return PRIORITY.inStreak;
  const hasFailedOnlyInStreak =
    delivery.priority !== PRIORITY.scheduled && hasFailedIn(streak, delivery);
  return hasFailedOnlyInStreak ? PRIORITY.inStreak : PRIORITY.scheduled;
}

/**
 * An event type yields to the others for so many times as long as its failed attempt has held them up. So a type that is
 * rejected takes a quarter of the time at most.
 */
const YIELD_FACTOR = 3;

/**
 * Returns the record of each event type after one more attempt, which has changed the pace from `before` to `after`.
 *
 * A failure holds up the other event types while its request takes, and during the wait that it begins. Its type then
 * yields to them for longer (`YIELD_FACTOR`). Otherwise, an endpoint that responds to one type with a long `Retry-After`,
 * or lets it time out, would get a single event of another type between two waits. The yielding ends, so that a type which
 * is accepted again does not wait for the backlog of another one.
 */
export function noteTypeOutcome(
  known: TypeOutcomes,
  attempt: Attempt<Outcome>,
  before: Pick<Pace, "blockedUntil">,
  after: Pick<Pace, "blockedUntil">,
): TypeOutcomes {
  const { delivery, outcome, startedAt, endedAt } = attempt;
  const { type, priority } = delivery;
  if (succeeded(outcome)) {
    const { [type]: _, ...rejections } = known.rejections;
    return { rejections, acceptedTypes: [...new Set([...known.acceptedTypes, type])].toSorted() };
  }
  if (priority === PRIORITY.manual) return known;
  // Not before its streak, even if the clock was set back during the attempt: otherwise, the endpoint would seem to have
  // accepted something in between (`rejectedTypes`).
  const { since = Math.max(startedAt, endedAt), yieldsUntil = 0 } = known.rejections[type] ?? {};
  const delayedUntil = after.blockedUntil > before.blockedUntil ? after.blockedUntil : endedAt;
  const rejection = {
    since,
    outcome: outcome.kind,
    status: statusOf(outcome),
    yieldsUntil: Math.max(yieldsUntil, delayedUntil + YIELD_FACTOR * (delayedUntil - startedAt)),
  };
  return {
    rejections: { ...known.rejections, [type]: rejection },
    acceptedTypes: known.acceptedTypes.filter((accepted) => accepted !== type),
  };
}

/**
 * Whether a failed attempt disables its subscription. It does if nothing has succeeded for three days, ten attempts at two
 * events or more have failed, and the endpoint has been unavailable for three days, too, or accepts no event type that is
 * listed. A subscription whose endpoint responds, and accepts one type, is not disabled because of another. None is
 * disabled because of a single event, or by a manual send.
 *
 * A type counts as accepted if its last attempt succeeded, or if it has failed for less than three days. Otherwise, while
 * one type is rejected, the first failure of a rare one would disable the subscription. For the same reason, a single
 * time-out does not show that the endpoint is unavailable.
 *
 * @param listed the event types of the subscription.
 */
export function isDead(
  { streak }: Pace,
  { rejections, acceptedTypes }: TypeOutcomes,
  { delivery, endedAt }: Attempt<Outcome>,
  listed: readonly WebhookEvent[],
): boolean {
  if (delivery.priority === PRIORITY.manual) return false;
  const since = endedAt - DISABLE_AFTER_MS;
  if (streak === null || streak.startedAt > since) return false;
  if (streak.attempts < DISABLE_AFTER_FAILURES || streak.events < 2) return false;
  const { unavailableSince } = streak;
  if (unavailableSince !== null && unavailableSince <= since) return true;
  const isAccepted = (type: WebhookEvent) =>
    acceptedTypes.includes(type) || (rejections[type]?.since ?? 0) > since;
  return !listed.some(isAccepted);
}
