import type { WebhookEvent } from "../../contract/enumerations.ts";
import {
  RETRY_AFTER_MAX_MULTIPLE,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  TELL_AFTER_MS,
} from "../../contract/limits.ts";
import type { Rejection, Rejections } from "../../db/schema.ts";
import { type AttemptOutcome, succeeded } from "../outcome.ts";

/**
 * Maximum concurrent posts per subscription, and per invocation: the runtime lets six requests of an
 * invocation wait for their response; a seventh is queued, wakes included. A dispatch that serves
 * several subscriptions therefore keeps one connection free.
 */
export const POSTS_AT_ONCE = 6;
/** An answer that takes this long counts as slow. */
export const SLOW_ANSWER_MS = 2_000;

/** How fast a subscription may be posted to, and from when on. */
export interface Pace {
  /** Number of concurrent posts it has earned. */
  postsAtOnce: number;
  /** Number of waits since it began to fail, one after each probe; 0 if it is not backing off. */
  backoff: number;
  /** No post starts before this time: Unix milliseconds. */
  nextAt: number;
  /** Whether an answer was slow, since when it has not earned `POSTS_AT_ONCE` posts again. */
  slow: boolean;
  /** Failed attempts since the last success. */
  failures: number;
  /** The first of these failures: Unix milliseconds. */
  failingSince: number | null;
  /** The kinds of events that it rejects, or fails to take. */
  rejections: Rejections;
}

/** A kind of events that a subscription has rejected for a day although it accepts others. */
export interface RejectedKind extends Rejection {
  type: WebhookEvent;
}

/**
 * The kinds that a subscription lists and has rejected for at least `TELL_AFTER_MS`, although it has
 * accepted others since. If it accepts nothing, it is failing instead, and this is empty.
 *
 * @param now Unix milliseconds.
 */
export function rejectedKinds(
  {
    rejections,
    failingSince,
    events,
  }: Pick<Pace, "rejections" | "failingSince"> & {
    events: WebhookEvent[];
  },
  now: number,
): RejectedKind[] {
  return events.flatMap((type) => {
    const rejection = rejections[type];
    if (!rejection || now - rejection.since < TELL_AFTER_MS) return [];
    return failingSince === null || failingSince > rejection.since ? [{ type, ...rejection }] : [];
  });
}

/**
 * The queue that wakes a subscription; failing and slow ones have their own, so as not to delay
 * others.
 */
export type Lane = "fast" | "slow";

/** The lane of a subscription. */
export function laneOf({ slow, backoff }: Pick<Pace, "slow" | "backoff">): Lane {
  return slow || backoff > 0 ? "slow" : "fast";
}

/** What becomes of a delivery. */
export type Decision =
  | { state: "delivered" }
  | { state: "pending"; waitMs: number }
  | { state: "exhausted" };

/** A finished post; times are Unix milliseconds. */
export interface Attempt {
  /** The kind of its event. */
  type: WebhookEvent;
  outcome: AttemptOutcome;
  startedAt: number;
  endedAt: number;
}

/**
 * Decides what happens to a delivery after its n-th attempt.
 *
 * @param attempt 1 for the first.
 * @param random between 0 and 1; sets the jitter.
 */
export function decide(outcome: AttemptOutcome, attempt: number, random: number): Decision {
  if (succeeded(outcome)) return { state: "delivered" };
  const rungSeconds = RETRY_WAITS_SECONDS[attempt - 1];
  if (rungSeconds === undefined) return { state: "exhausted" };
  return { state: "pending", waitMs: waitMs(rungSeconds, outcome, random) };
}

/**
 * The pace of a subscription after one more attempt. A fast success allows one more concurrent
 * post; a slow success or a failure halves them. A failure while only one post at a time is
 * allowed, or one that asks for a wait, makes the subscription back off: it is probed with one post
 * after each wait of the ladder, and the first probe that succeeds ends the backoff.
 *
 * @param random between 0 and 1; sets the jitter.
 */
export function adjustPace(pace: Pace, attempt: Attempt, random: number): Pace {
  const { outcome, startedAt, endedAt, type } = attempt;
  const isSlow = endedAt - startedAt >= SLOW_ANSWER_MS;
  const slow = pace.slow || isSlow;
  // It was in flight when the backoff began, so it is not a probe.
  const isLate = startedAt < pace.nextAt;
  if (succeeded(outcome)) {
    const { [type]: accepted, ...others } = pace.rejections;
    const rejections = accepted ? others : pace.rejections;
    const healthy = { ...pace, slow, failures: 0, failingSince: null, rejections };
    if (isLate) return healthy;
    const earned = pace.backoff > 0 ? 1 : Math.min(pace.postsAtOnce + 1, POSTS_AT_ONCE);
    const postsAtOnce = isSlow ? halved(pace.postsAtOnce) : earned;
    // A single fast answer does not end it: whoever hangs every other time would hold up the fast lane.
    return {
      ...healthy,
      postsAtOnce,
      backoff: 0,
      nextAt: 0,
      slow: slow && postsAtOnce < POSTS_AT_ONCE,
    };
  }
  const failing = {
    ...pace,
    slow,
    failures: pace.failures + 1,
    failingSince: pace.failingSince ?? endedAt,
    rejections: { ...pace.rejections, [type]: rejectionOf(attempt, pace.rejections[type]) },
  };
  if (isLate) return failing;
  const backsOff = pace.backoff > 0 || pace.postsAtOnce === 1 || askedWaitMs(outcome) > 0;
  if (!backsOff) return { ...failing, postsAtOnce: halved(pace.postsAtOnce) };
  const rungSeconds = RETRY_WAITS_SECONDS[pace.backoff] ?? RETRY_WAITS_SECONDS.at(-1) ?? 0;
  const nextAt = endedAt + waitMs(rungSeconds, outcome, random);
  return { ...failing, postsAtOnce: 1, backoff: pace.backoff + 1, nextAt };
}

function rejectionOf({ outcome, endedAt }: Attempt, earlier?: Rejection): Rejection {
  const status = outcome.kind === "answered" ? outcome.status : null;
  return { since: earlier?.since ?? endedAt, outcome: outcome.kind, status };
}

function halved(postsAtOnce: number): number {
  return Math.max(1, Math.floor(postsAtOnce / 2));
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
  if (outcome.kind !== "answered" || (outcome.status !== 429 && outcome.status !== 503)) return 0;
  return (outcome.retryAfterSeconds ?? 0) * 1000;
}
