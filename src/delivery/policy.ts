import type { WebhookEvent } from "../contract/enumerations.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  PROBE_WAITS_SECONDS,
  RETRY_AFTER_MAX_MULTIPLE,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
} from "../contract/limits.ts";
import type { Priority, Rejection, Rejections } from "../db/schema.ts";
import { type AttemptOutcome, statusOf, succeeded } from "./outcome.ts";

/**
 * Maximum concurrent posts per subscription, and per invocation: the runtime lets six requests of an
 * invocation wait for their response; a seventh is queued, wakes included. A dispatch that serves
 * several subscriptions therefore keeps one connection free.
 */
export const POSTS_AT_ONCE = 6;
/** An answer that takes this long counts as slow. */
export const SLOW_ANSWER_MS = 2_000;

/**
 * While an endpoint fails, nothing waits longer than this for its next attempt. Nor does what failed
 * during an outage that lasted, once it ends.
 */
export const PROBE_AT_LEAST_MS = (PROBE_WAITS_SECONDS.at(-1) ?? 0) * 1000;
/** What failed is retried at once if the endpoint recovers after a wait of this long. */
const OUTAGE_SECONDS = 60;
const PATIENCE_MAX = 20;

/** How fast a subscription may be posted to, and from when on. */
export interface Pace {
  /** Number of concurrent posts it has earned. */
  postsAtOnce: number;
  /** How many different events have failed in a row, or which wait it has reached; 0 after a success. */
  backoff: number;
  /** How many it has rejected in a row before it accepted one again: so many are no sign of an outage. */
  patience: number;
  /**
   * It cannot be reached, answers too late or asks for a wait: no post starts before this time, in Unix
   * milliseconds. Later posts are probes, one at a time. 0 after a success.
   */
  nextAt: number;
  /** The same for the kinds in `rejections`: it answers, but has rejected one event after the other. */
  rejectedUntil: number;
  /** The kinds of events that it rejects, or fails to take. */
  rejections: Rejections;
  /** Whether an answer was slow, since when it has not earned `POSTS_AT_ONCE` posts again. */
  slow: boolean;
  /** Failed attempts since the last success. */
  failures: number;
  /** The first of these failures: Unix milliseconds. */
  failingSince: number | null;
  /** Up to two different events among them. */
  failedEvents: string[];
}

/** The pace of a subscription that is new, or enabled again. */
export const FRESH: Pace = {
  postsAtOnce: 1,
  backoff: 0,
  patience: 0,
  nextAt: 0,
  rejectedUntil: 0,
  rejections: {},
  slow: false,
  failures: 0,
  failingSince: null,
  failedEvents: [],
};

/** Whether a subscription has failed for so long, and at so many events, that it is disabled. */
export function isDead({ failures, failingSince, failedEvents }: Pace, now: number): boolean {
  if (failingSince === null || failingSince > now - DISABLE_AFTER_MS) return false;
  return failures >= DISABLE_AFTER_FAILURES && failedEvents.length > 1;
}

/**
 * The queue that wakes a subscription; failing and slow ones have their own, so as not to delay
 * others. One that rejects events at once delays nobody.
 */
export type Lane = "fast" | "slow";

/** The lane of a subscription. */
export function laneOf({ slow, nextAt }: Pick<Pace, "slow" | "nextAt">): Lane {
  return slow || nextAt > 0 ? "slow" : "fast";
}

/** A delivery that is to be posted, or was. */
export interface Post {
  eventId: string;
  /** The kind of its event. */
  type: WebhookEvent;
  priority: Priority;
  /** Its attempts before this one. */
  attempts: number;
  /** Unix milliseconds. */
  dueAt: number;
  /** If it was sent by hand before it was due: when that was to be. */
  turnAt: number | null;
}

/** A finished post; times are Unix milliseconds. */
export interface Attempt {
  delivery: Post;
  outcome: AttemptOutcome;
  startedAt: number;
  endedAt: number;
}

/**
 * Whether an attempt does not count if it fails: somebody sent the delivery by hand, or it probed the
 * endpoint, before its time. The first attempt always counts.
 */
export function isExtra({ delivery, startedAt }: Pick<Attempt, "delivery" | "startedAt">): boolean {
  const { attempts, turnAt, dueAt } = delivery;
  return attempts > 0 && (turnAt ?? dueAt) > startedAt;
}

/**
 * Decides what happens to a delivery after its n-th attempt.
 *
 * @param attempt 1 for the first.
 * @param random between 0 and 1; sets the jitter.
 */
export function decide(outcome: AttemptOutcome, attempt: number, random: number) {
  if (succeeded(outcome)) return { state: "delivered" as const, waitMs: 0 };
  const rungSeconds = RETRY_WAITS_SECONDS[attempt - 1];
  if (rungSeconds === undefined) return { state: "exhausted" as const, waitMs: 0 };
  return { state: "pending" as const, waitMs: waitMs(rungSeconds, outcome, random) };
}

/**
 * Until when a delivery waits for its endpoint; Unix milliseconds. What is sent by hand does not wait.
 */
export function heldUntil(
  { nextAt, rejectedUntil, rejections }: Pace,
  { type, priority }: Pick<Post, "type" | "priority">,
): number {
  if (priority === 1) return 0;
  return rejections[type] ? Math.max(nextAt, rejectedUntil) : nextAt;
}

/**
 * The pace of a subscription after one more attempt.
 *
 * A fast success allows one more concurrent post; a slow success, or a failure that says something about
 * the endpoint, halves them. The endpoint backs off if it cannot be reached, answers too late or asks for
 * a wait; and, for the kinds that it rejects, if it rejects different events one after the other. An
 * event that is rejected again says nothing new. The first success ends all waits.
 *
 * @param random between 0 and 1; sets the jitter.
 */
export function adjustPace(pace: Pace, attempt: Attempt, random: number): Pace {
  const { outcome, startedAt, endedAt, delivery } = attempt;
  const isSlow = endedAt - startedAt >= SLOW_ANSWER_MS;
  const slow = pace.slow || isSlow;
  // It was in flight when the wait began, so it is not a probe.
  const isLate = startedAt < heldUntil(pace, delivery);
  if (succeeded(outcome)) {
    const { [delivery.type]: accepted, ...others } = pace.rejections;
    const rejections = accepted ? others : pace.rejections;
    const healthy = { ...pace, slow, rejections, failures: 0, failingSince: null };
    if (isLate) return { ...healthy, failedEvents: [] };
    const earned = pace.nextAt > 0 ? 1 : Math.min(pace.postsAtOnce + 1, POSTS_AT_ONCE);
    const postsAtOnce = isSlow ? halved(pace.postsAtOnce) : earned;
    return {
      ...{ ...FRESH, rejections, postsAtOnce, patience: patienceAfter(pace) },
      // A single fast answer does not end it: whoever hangs every other time would hold up the fast lane.
      slow: slow && postsAtOnce < POSTS_AT_ONCE,
    };
  }
  if (delivery.priority === 1) return pace;
  const failing = {
    ...pace,
    slow,
    rejections: { ...pace.rejections, [delivery.type]: rejectionOf(attempt, pace.rejections) },
    failures: pace.failures + 1,
    failingSince: pace.failingSince ?? endedAt,
    failedEvents: [...new Set([...pace.failedEvents, delivery.eventId])].slice(0, 2),
  };
  if (isLate) return failing;
  if (isAway(outcome)) {
    const climbed = failing.failedEvents.length > 1 ? climb(pace) : pace.backoff;
    const backoff = Math.max(climbed, FIRST_AWAY);
    const nextAt = endedAt + probeWaitMs(backoff, outcome, random);
    return { ...failing, postsAtOnce: 1, backoff, nextAt };
  }
  const isNew = delivery.attempts === 0;
  const backoff = isNew ? climb(pace) : pace.backoff;
  const postsAtOnce = isNew ? halved(pace.postsAtOnce) : pace.postsAtOnce;
  const waitsMs = probeWaitMs(backoff - pace.patience, outcome, random);
  const rejectedUntil = waitsMs > 0 ? endedAt + waitsMs : pace.rejectedUntil;
  return { ...failing, postsAtOnce, backoff, nextAt: 0, rejectedUntil };
}

/** Whether a change of pace ended an outage that lasted, so that what failed in it need not wait. */
export function endsOutage(before: Pace, after: Pace): boolean {
  if (after.backoff > 0 || !isOut(before)) return false;
  // If it takes other kinds than those that it rejects, nothing has changed for these.
  return (
    before.nextAt > 0 || Object.keys(before.rejections).some((type) => !(type in after.rejections))
  );
}

/** An endpoint that is away is left alone for as long as an event that failed, at first. */
export const FIRST_AWAY = 1 + PROBE_WAITS_SECONDS.indexOf(Number(RETRY_WAITS_SECONDS[0]));

/** Whether the endpoint cannot be reached, answers too late, or asks to be left alone. */
function isAway(outcome: AttemptOutcome): boolean {
  return outcome.kind !== "answered" || asksForWait(outcome);
}

function rejectionOf({ outcome, endedAt, delivery }: Attempt, known: Rejections): Rejection {
  const since = known[delivery.type]?.since ?? endedAt;
  return { since, outcome: outcome.kind, status: statusOf(outcome) };
}

/** Whether the wait that it has reached says that it is out of order. */
function isOut({ backoff, patience, nextAt }: Pace): boolean {
  return probeWaitSeconds(nextAt > 0 ? backoff : backoff - patience) >= OUTAGE_SECONDS;
}

function patienceAfter(pace: Pace): number {
  if (isOut(pace)) return 0;
  return pace.nextAt > 0
    ? pace.patience
    : Math.min(Math.max(pace.patience, pace.backoff), PATIENCE_MAX);
}

function climb({ backoff }: Pace): number {
  return Math.min(backoff + 1, PROBE_WAITS_SECONDS.length + PATIENCE_MAX);
}

function halved(postsAtOnce: number): number {
  return Math.max(1, Math.floor(postsAtOnce / 2));
}

function probeWaitMs(backoff: number, outcome: AttemptOutcome, random: number): number {
  return Math.min(waitMs(probeWaitSeconds(backoff), outcome, random), PROBE_AT_LEAST_MS);
}

function probeWaitSeconds(backoff: number): number {
  const rung = Math.min(backoff, PROBE_WAITS_SECONDS.length) - 1;
  return PROBE_WAITS_SECONDS[rung] ?? 0;
}

/**
 * Never shorter than its rung, so that the ladder outlasts the time after which a subscription is
 * disabled.
 */
function waitMs(rungSeconds: number, outcome: AttemptOutcome, random: number): number {
  const rungMs = rungSeconds * 1000;
  const asked = Math.min(askedWaitMs(outcome), rungMs * RETRY_AFTER_MAX_MULTIPLE);
  return Math.round(Math.max(rungMs * (1 + RETRY_JITTER * random), asked));
}

/** The wait the subscriber asked for, in milliseconds; honoured on 429 and 503 only. */
function askedWaitMs(outcome: AttemptOutcome): number {
  if (outcome.kind !== "answered" || !asksForWait(outcome)) return 0;
  return (outcome.retryAfterSeconds ?? 0) * 1000;
}

function asksForWait(outcome: AttemptOutcome & { kind: "answered" }): boolean {
  return outcome.status === 429 || outcome.status === 503;
}
