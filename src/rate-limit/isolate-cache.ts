import { BoundedMap } from "../primitives/bounded-map.ts";
import type { RateLimit } from "./window.ts";

/** Maximum keys, and maximum IP addresses, that an isolate caches. */
const REMEMBERED_MAX = 10_000;
/** How long an isolate repeats a refusal of a gate without calling it. */
export const REFUSING_MS = 2_000;

/** An admitted key in the cache of an isolate: its workspace, and how recent its reads were. */
export interface KnownKey {
  workspaceId: string;
  /** The name of the workspace's database when the key was last admitted. */
  database: string;
  /** The bookmark of that database that was last read. */
  bookmark: string | null;
}

/**
 * Caches the last answer of each gate, with its window. Once the window is used up, a flood of requests reaches the
 * gate at most once every two seconds.
 */
class AnswerCache<Answer extends { rateLimit: RateLimit }> {
  readonly #known = new BoundedMap<{
    answer: Answer;
    resetAt: number;
    askAt: number;
    /** How often the answer was repeated. */
    repeated: number;
  }>(REMEMBERED_MAX);

  /**
   * Caches an answer.
   *
   * @param askedAt when the gate was called, rather than when it answered, so that no request is refused after the
   *   window has ended.
   * @param until when the answer expires at the latest, in Unix milliseconds.
   */
  note(name: string, answer: Answer, askedAt: number, until = Number.POSITIVE_INFINITY): void {
    const resetAt = askedAt + answer.rateLimit.resetMs;
    const askAt = Math.min(askedAt + REFUSING_MS, until);
    const repeated = this.#known.get(name)?.repeated ?? 0;
    this.#known.set(name, { answer, resetAt, askAt, repeated });
  }

  /**
   * Repeats an answer whose window is used up, with the window as of `now`, and counts that. Returns null if the gate
   * must be called.
   */
  repeat(name: string, now: number): Answer | null {
    const known = this.#known.get(name);
    const rateLimit = this.findWindow(name, now);
    if (!known || !rateLimit || rateLimit.remaining > 0 || now >= known.askAt) return null;
    known.repeated++;
    return { ...known.answer, rateLimit };
  }

  /** Returns the window as of `now`; null if it has ended, or is not cached. */
  findWindow(name: string, now: number): RateLimit | null {
    const known = this.#known.get(name);
    if (!known || now >= known.resetAt) return null;
    return { ...known.answer.rateLimit, resetMs: known.resetAt - now };
  }

  /** Removes an answer. Returns it with how often it was repeated, and the approximate time of that. */
  remove(name: string): { answer: Answer; repeated: number; at: number } | null {
    const known = this.#known.get(name);
    this.#known.delete(name);
    return known ? { answer: known.answer, repeated: known.repeated, at: known.askAt } : null;
  }
}

/** The answer of a gate for a key that it does not admit. */
export interface KeyRefusal {
  verdict: "access_denied" | "rate_limited";
  keyId: string;
  workspaceId: string;
  rateLimit: RateLimit;
  /** When the key expires, after which it is unknown, in Unix milliseconds; null if it does not. */
  expiresAt: number | null;
}

// The caches of this isolate. They admit no request; they only save calls of the gates.
export const knownKeys = new BoundedMap<KnownKey>(REMEMBERED_MAX);
export const recentRefusals = new AnswerCache<KeyRefusal>();
export const failingAddresses = new AnswerCache<{ rateLimit: RateLimit }>();
/** Keys that are unknown, revoked or expired, with the time until which they are refused, in Unix milliseconds. */
export const unknownKeys = new BoundedMap<number>(REMEMBERED_MAX);
