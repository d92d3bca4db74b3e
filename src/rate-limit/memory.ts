import { BoundedMap } from "../bounded-map.ts";
import type { RateLimit } from "./window.ts";

/** How many keys, and how many addresses, one isolate remembers. */
const REMEMBERED_MAX = 10_000;
/** How long an isolate repeats a gate's refusal by itself. */
export const REFUSING_MS = 2_000;

/** What an isolate remembers about an admitted key: whose it is, and how recent its reads were. */
interface KnownKey {
  workspaceId: string;
  /** The name of the workspace's database when the key was last admitted. */
  database: string;
  /** The bookmark of that database that was last read. */
  bookmark: string | null;
}

/**
 * What gates last answered, with the windows that they count in. A flood of what one refuses is refused
 * here, and asks the gate once in two seconds.
 */
class Windows<Answer extends { rateLimit: RateLimit }> {
  readonly #known = new BoundedMap<{
    answer: Answer;
    resetAt: number;
    askAt: number;
    /** How many requests were refused here. */
    count: number;
  }>(REMEMBERED_MAX);

  /**
   * @param askedAt when the gate was asked, rather than when it answered, so that nothing is refused
   *   after the window has ended.
   * @param until when the answer ends at the latest, in Unix milliseconds.
   */
  note(name: string, answer: Answer, askedAt: number, until = Number.POSITIVE_INFINITY): void {
    const resetAt = askedAt + answer.rateLimit.resetMs;
    const askAt = Math.min(askedAt + REFUSING_MS, until);
    const count = this.#known.get(name)?.count ?? 0;
    this.#known.set(name, { answer, resetAt, askAt, count });
  }

  /** The answer if its window is used up, with the window as of `now`; null if the gate must be asked. */
  find(name: string, now: number): Answer | null {
    const known = this.#known.get(name);
    const rateLimit = this.findWindow(name, now);
    if (!known || !rateLimit || rateLimit.remaining > 0 || now >= known.askAt) return null;
    known.count++;
    return { ...known.answer, rateLimit };
  }

  /** The window as of `now`; null if it has ended, or this isolate has not heard of it. */
  findWindow(name: string, now: number): RateLimit | null {
    const known = this.#known.get(name);
    if (!known || now >= known.resetAt) return null;
    return { ...known.answer.rateLimit, resetMs: known.resetAt - now };
  }

  /** Forgets an answer. @returns it, with how many requests were refused since, and roughly when. */
  take(name: string): { answer: Answer; count: number; at: number } | null {
    const known = this.#known.get(name);
    this.#known.delete(name);
    return known ? { answer: known.answer, count: known.count, at: known.askAt } : null;
  }
}

/** A gate's answer for a key that it does not admit. */
export interface KeyRefusal {
  verdict: "access_denied" | "rate_limited";
  keyId: string;
  workspaceId: string;
  rateLimit: RateLimit;
  /** When the key expires, after which it is unknown, in Unix milliseconds; null if it does not. */
  expiresAt: number | null;
}

// What this isolate has seen. None of it admits a request; it only saves waiting for the gates.
export const knownKeys = new BoundedMap<KnownKey>(REMEMBERED_MAX);
export const recentRefusals = new Windows<KeyRefusal>();
export const failingAddresses = new Windows<{ rateLimit: RateLimit }>();
/** Until when a key is refused here, in Unix milliseconds: it is unknown, revoked or expired, and stays so. */
export const unknownKeys = new BoundedMap<number>(REMEMBERED_MAX);
