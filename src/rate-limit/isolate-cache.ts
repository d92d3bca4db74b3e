import { BoundedMap } from "../primitives/bounded-map.ts";
import type { KeyRefusal, UncountedRefusals } from "./key-gate.ts";
import type { RateLimit } from "./window.ts";

/** Maximum keys, and maximum IP addresses, that an isolate caches. */
const REMEMBERED_MAX = 10_000;
/** How long an isolate repeats a refusal of a gate without calling it. */
export const REFUSING_MS = 2_000;

/** An admitted key in the cache of an isolate. */
export interface KnownKey {
  workspaceId: string;
  /** The name of the workspace's database when the key was last admitted. */
  database: string;
  /**
   * How many reads may still begin before the gate has decided: what the key's window had left at the last admission here.
   */
  earlyReads: number;
}

/**
 * Caches results of gates, with their windows: the last refusal of each key, unless the key expires, and the last failure
 * of each IP address. Once a window is used up, a flood of requests then reaches its gate at most once every two seconds.
 */
class ResultCache<Result extends { rateLimit: RateLimit }> {
  readonly #known = new BoundedMap<{ result: Result; calledAt: number }>(REMEMBERED_MAX);

  /**
   * Caches a result.
   *
   * @param calledAt when the gate was called, rather than when it responded, so that no request is refused after the
   *   window has ended.
   */
  set(name: string, result: Result, calledAt: number): void {
    this.#known.set(name, { result, calledAt });
  }

  /**
   * Returns a result whose window is used up, with the window as of `now`. Returns null if the gate must be called: no
   * result is cached, it is older than `REFUSING_MS`, or its window has requests left, each of which the gate counts.
   */
  findUsedUp(name: string, now: number): Result | null {
    const known = this.#known.get(name);
    const rateLimit = this.findWindow(name, now);
    if (!known || !rateLimit || rateLimit.remaining > 0 || now >= known.calledAt + REFUSING_MS)
      return null;
    return { ...known.result, rateLimit };
  }

  /** Returns the window as of `now`; null if it has ended, or is not cached. */
  findWindow(name: string, now: number): RateLimit | null {
    const known = this.#known.get(name);
    if (!known) return null;
    const { rateLimit } = known.result;
    const resetMs = known.calledAt + rateLimit.resetMs - now;
    return resetMs > 0 ? { ...rateLimit, resetMs } : null;
  }

  delete(name: string): void {
    this.#known.delete(name);
  }
}

// The caches of this isolate. None admits a request. `knownKeys` lets a read begin before its gate has decided; the
// others save calls of gates that would refuse.
export const knownKeys = new BoundedMap<KnownKey>(REMEMBERED_MAX);
export const recentRefusals = new ResultCache<KeyRefusal>();
/** The 429s of each key that this isolate has repeated since its last call of the key's gate. */
export const uncountedRefusals = new BoundedMap<UncountedRefusals>(REMEMBERED_MAX);
export const failingAddresses = new ResultCache<{ rateLimit: RateLimit }>();
/** Keys that are unknown, revoked or expired, with the time until which they are refused, in Unix milliseconds. */
export const unknownKeys = new BoundedMap<number>(REMEMBERED_MAX);
