/** How fast, and from when on, a subscription may be posted to. */
export interface Pace {
  /** Number of concurrent posts it has earned. */
  postsAtOnce: number;
  /** Number of waits since it began to fail, one after each probe; 0 if it is not backing off. */
  backoff: number;
  /** No post starts before this time: Unix milliseconds. */
  nextAt: number;
  /** Whether its last answer was slow. */
  slow: boolean;
  /** Failed attempts since the last success. */
  failures: number;
  /** The first of these failures: Unix milliseconds. */
  failingSince: number | null;
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
