import {
  POSTS_AT_ONCE,
  RETRY_AFTER_MAX_MULTIPLE,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SLOW_ANSWER_MS,
} from "../../contract/limits.ts";
import { type Outcome, succeeded } from "../outcome.ts";
import type { Pace } from "../pace.ts";

/** What happens to a delivery. */
export type Verdict =
  | { state: "delivered" }
  | { state: "pending"; waitMs: number }
  | { state: "exhausted" };

/** A finished post; times are Unix milliseconds. */
export interface Attempt {
  outcome: Outcome;
  startedAt: number;
  endedAt: number;
}

/**
 * Decides what happens to a delivery after its n-th attempt.
 *
 * @param attempt 1 for the first.
 * @param random between 0 and 1; sets the jitter.
 */
export function judge(outcome: Outcome, attempt: number, random: number): Verdict {
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
  const { outcome, startedAt, endedAt } = attempt;
  const slow = endedAt - startedAt >= SLOW_ANSWER_MS;
  // Already in progress when the backoff began, so not a probe.
  const stale = startedAt < pace.nextAt;
  if (succeeded(outcome)) {
    const well = { ...pace, slow, failures: 0, failingSince: null };
    if (stale) return well;
    const earned = pace.backoff > 0 ? 1 : Math.min(pace.postsAtOnce + 1, POSTS_AT_ONCE);
    const postsAtOnce = slow ? halved(pace.postsAtOnce) : earned;
    return { ...well, postsAtOnce, backoff: 0, nextAt: 0 };
  }
  const failing = {
    ...pace,
    slow: pace.slow || slow,
    failures: pace.failures + 1,
    failingSince: pace.failingSince ?? endedAt,
  };
  if (stale) return failing;
  const closes = pace.backoff > 0 || pace.postsAtOnce === 1 || askedWaitMs(outcome) > 0;
  if (!closes) return { ...failing, postsAtOnce: halved(pace.postsAtOnce) };
  const rungSeconds = RETRY_WAITS_SECONDS[pace.backoff] ?? RETRY_WAITS_SECONDS.at(-1) ?? 0;
  const nextAt = endedAt + waitMs(rungSeconds, outcome, random);
  return { ...failing, postsAtOnce: 1, backoff: pace.backoff + 1, nextAt };
}

function halved(postsAtOnce: number): number {
  return Math.max(1, Math.floor(postsAtOnce / 2));
}

/**
 * Never shorter than its rung, so that the ladder outlasts the time after which a subscription is
 * disabled.
 */
function waitMs(rungSeconds: number, outcome: Outcome, random: number): number {
  const rungMs = rungSeconds * 1000;
  const asked = Math.min(askedWaitMs(outcome), rungMs * RETRY_AFTER_MAX_MULTIPLE);
  return Math.round(Math.max(rungMs * (1 + RETRY_JITTER * random), asked));
}

/** The wait the subscriber asked for, in milliseconds; honoured on 429 and 503 only. */
function askedWaitMs(outcome: Outcome): number {
  if (outcome.kind !== "answered" || (outcome.status !== 429 && outcome.status !== 503)) return 0;
  return (outcome.retryAfterSeconds ?? 0) * 1000;
}
