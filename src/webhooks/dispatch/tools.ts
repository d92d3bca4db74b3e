import type { Outcome } from "../outcome.ts";
import type { Post } from "./policy.ts";
import type { ClaimedRow, Snapshot } from "./settle-and-claim.ts";

/** What a dispatch needs from outside: time, randomness, and the post itself. */
export interface DispatchTools {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  /** Gets deliveries ready to be posted. @param targets those of their subscriptions, by id. */
  prepare(rows: ClaimedRow[], targets: ReadonlyMap<string, Target>): Claimed[];
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

/** A delivery that a dispatch may post. */
export interface Claimed extends Post {
  subscriptionId: string;
  /** Null if there is nothing left to post. What it throws, `attempt` does. */
  ready: Promise<Ready | null>;
}

/** The body of a post, and the headers that sign it. */
export interface Ready {
  body: string;
  signature: Record<string, string>;
  /** Unix milliseconds. */
  signedAt: number;
}

/** Where and how to post a delivery. */
export type Target = Pick<
  Snapshot,
  "workspaceId" | "dataKey" | "url" | "sealedSecret" | "sealedHeaders" | "earlierSecrets"
>;

/** How an attempt ended, and what is kept of its answer. */
export type Attempted = Outcome & { kept?: Promise<string | null> };

/** The event was erased after it was claimed. */
export class EventErased extends Error {}
