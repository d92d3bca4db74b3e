import type { Outcome } from "../outcome.ts";
import type { Claimed, Snapshot } from "./settle-and-claim.ts";

/** What a dispatch needs from outside: time, randomness, and the post itself. */
export interface DispatchTools {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  /**
   * Makes one attempt.
   *
   * @throws InvocationLimit if this invocation may not make more requests; EventErased if there is
   *   nothing left to post; UnreadableEvent if only this event cannot be posted; anything else if the
   *   attempt could not be made, through no fault of the subscriber.
   */
  attempt(delivery: Claimed, target: Target): Promise<Attempted>;
  /** Takes a subscription that the dispatch has finished with, and which may have more due. */
  finished(subscription: Snapshot): void;
}

/** What is needed to post a delivery. */
export type Target = Pick<
  Snapshot,
  "workspaceId" | "dataKey" | "url" | "sealedSecret" | "sealedHeaders" | "earlierSecrets"
>;

/** How an attempt ended, and what is kept of its answer. */
export type Attempted = Outcome & { kept?: Promise<string | null> };

/** The event was erased after it was claimed. */
export class EventErased extends Error {}
