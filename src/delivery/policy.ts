import { RETRY_AFTER_MAX_MULTIPLE, RETRY_JITTER, RETRY_WAITS_SECONDS } from "../contract/limits.ts";

/** How a post ended. */
export type Outcome =
  | { kind: "answered"; status: number; retryAfterSeconds: number | null }
  /** No complete answer within the limit. */
  | { kind: "timed_out" }
  /** No connection: DNS, TLS, refused, cut. */
  | { kind: "unreachable" }
  /** Not sent: the URL is not one that we post to, or no longer. */
  | { kind: "refused" };

/** What becomes of a delivery. */
export type Verdict =
  | { state: "delivered" }
  | { state: "pending"; waitMs: number }
  | { state: "exhausted" };

/** Whether the subscriber acknowledged: any 2xx (contract, Delivery 4). */
export function succeeded(outcome: Outcome): boolean {
  return outcome.kind === "answered" && outcome.status >= 200 && outcome.status < 300;
}

/**
 * Judges the n-th attempt of a delivery.
 *
 * @param attempt 1 for the first.
 * @param random a number from 0 to 1 that places the wait within its jitter.
 */
export function judge(outcome: Outcome, attempt: number, random: number): Verdict {
  if (succeeded(outcome)) return { state: "delivered" };
  const rungSeconds = RETRY_WAITS_SECONDS[attempt - 1];
  if (rungSeconds === undefined) return { state: "exhausted" };
  const rungMs = rungSeconds * 1000;
  const jittered = rungMs * (1 - RETRY_JITTER + 2 * RETRY_JITTER * random);
  const asked = Math.min(askedWaitMs(outcome), rungMs * RETRY_AFTER_MAX_MULTIPLE);
  return { state: "pending", waitMs: Math.round(Math.max(jittered, asked)) };
}

/** The wait that the subscriber asked for, in milliseconds; only 429 and 503 may ask. */
function askedWaitMs(outcome: Outcome): number {
  if (outcome.kind !== "answered" || (outcome.status !== 429 && outcome.status !== 503)) return 0;
  return (outcome.retryAfterSeconds ?? 0) * 1000;
}
