import type { Attempted, Claimed, Target } from "./sender.ts";
import type { ClaimedRow, Snapshot } from "./settle-and-claim.ts";

/** What a dispatch needs from outside: time, randomness, and the post itself. */
export interface DispatchTools {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  /**
   * Gets deliveries ready to be posted.
   *
   * @param targets those of their subscriptions, by id.
   * @param now Unix milliseconds: the targets were read then, or later.
   */
  prepare(rows: ClaimedRow[], targets: ReadonlyMap<string, Target>, now: number): Claimed[];
  /**
   * Makes one attempt.
   *
   * @throws InvocationLimit if this invocation may not make more requests; UnreadableEvent if only this
   *   event cannot be posted; anything else if the attempt could not be made, through no fault of the
   *   subscriber.
   */
  attempt(delivery: Claimed, target: Target): Promise<Attempted>;
  /** Takes a subscription that the dispatch has finished with, and which may have more due. */
  finished(subscription: Snapshot): void;
}
