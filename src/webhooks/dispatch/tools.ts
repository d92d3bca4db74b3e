import type { Outcome } from "../outcome.ts";
import type { Claimed, Found } from "./settle-and-claim.ts";
import type { Target } from "./turn.ts";

/** What a dispatch needs from outside: time, randomness, the key gates, and the post itself. */
export interface DispatchTools {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  sleep(ms: number): Promise<void>;
  /**
   * Makes sure that reads with the workspaces' keys find what was claimed.
   *
   * @param keyHashes their keys, as far as they are in this database.
   */
  tellGates(keyHashes: string[], workspaceIds: string[]): Promise<void>;
  /**
   * Makes one attempt.
   *
   * @throws InvocationLimit if this invocation may not make more requests; EventErased if there is
   *   nothing left to post; anything else if the attempt could not be made, through no fault of the
   *   subscriber.
   */
  attempt(delivery: Claimed, target: Target): Promise<Outcome>;
  /** Takes a subscription whose turn has ended, and which may have more due, now or later. */
  ended(subscription: EndedTurn): void;
}

/** A subscription the dispatch has finished with. */
export interface EndedTurn {
  found: Found;
  /** Whether this dispatch held it at any time. */
  held: boolean;
}

/** The event was erased after it was claimed. */
export class EventErased extends Error {}
