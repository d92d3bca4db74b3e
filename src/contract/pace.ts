/** How fast, and when, a subscription may be posted to. */
export interface Pace {
  /** Posts at once that it has earned. */
  postsAtOnce: number;
  /** Waits since it began to fail, one after each probe; 0 while it is open. */
  backoff: number;
  /** No post starts before this: Unix milliseconds. */
  nextAt: number;
  /** Whether its last answer was slow. */
  slow: boolean;
  /** Failed attempts since the last success. */
  failures: number;
  /** The first of them: Unix milliseconds. */
  failingSince: number | null;
}

/** Which queue wakes a subscription: those that fail or answer slowly hold up no others. */
export type Lane = "fast" | "slow";

/** The lane of a subscription. */
export function laneOf({ slow, backoff }: Pick<Pace, "slow" | "backoff">): Lane {
  return slow || backoff > 0 ? "slow" : "fast";
}
