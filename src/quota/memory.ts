import { Recent } from "../recent.ts";
import type { RateLimit } from "./window.ts";

/** How many keys, and how many addresses, one isolate remembers. */
const REMEMBERED_MAX = 10_000;
/** How long an isolate repeats a gate's refusal by itself. */
const REFUSING_MS = 2_000;

/** What an isolate remembers about an admitted key: whose it is, and how recent its reads were. */
interface KnownKey {
  workspaceId: string;
  /** The name of the workspace's database when the key was last admitted. */
  database: string;
  /** The bookmark of that database that was last read. */
  bookmark: string | null;
}

/** Refusals because a window is used up, so that a flood does not call the gate each time. */
class UsedUp<Refusal extends { rateLimit: RateLimit }> {
  readonly #refusals = new Recent<{
    refusal: Refusal;
    resetAt: number;
    askAt: number;
    /** How many requests it has refused. */
    count: number;
  }>(REMEMBERED_MAX);

  /**
   * @param askedAt when the gate was asked, rather than when it answered, so that nothing is refused
   *   after the window has ended.
   * @param until when the refusal ends at the latest, in Unix milliseconds.
   */
  note(name: string, refusal: Refusal, askedAt: number, until = Number.POSITIVE_INFINITY): void {
    const resetAt = askedAt + refusal.rateLimit.resetMs;
    const askAt = Math.min(askedAt + REFUSING_MS, resetAt, until);
    const count = this.#refusals.get(name)?.count ?? 0;
    this.#refusals.set(name, { refusal, resetAt, askAt, count });
  }

  /** The refusal with the rate limit as of `now`; null if the gate must be asked. */
  find(name: string, now: number): Refusal | null {
    const known = this.#refusals.get(name);
    if (!known || now >= known.askAt) return null;
    const { refusal, resetAt } = known;
    known.count++;
    return {
      ...refusal,
      rateLimit: { ...refusal.rateLimit, remaining: 0, resetMs: resetAt - now },
    };
  }

  /** Forgets a refusal. @returns it, with how many requests it refused and roughly when. */
  take(name: string): { refusal: Refusal; count: number; at: number } | null {
    const known = this.#refusals.get(name);
    this.#refusals.delete(name);
    return known ? { refusal: known.refusal, count: known.count, at: known.askAt } : null;
  }

  delete(name: string): void {
    this.#refusals.delete(name);
  }
}

/** A gate's answer for a key that it does not admit. */
export interface KeyRefusal {
  verdict: "access_denied" | "quota_exceeded";
  keyId: string;
  workspaceId: string;
  rateLimit: RateLimit;
  /** When the key expires, after which it is unknown, in Unix milliseconds; null if it does not. */
  expiresAt: number | null;
}

// What this isolate has seen. None of it admits a request; it only saves waiting for the gates.
export const knownKeys = new Recent<KnownKey>(REMEMBERED_MAX);
export const usedUpKeys = new UsedUp<KeyRefusal>();
export const blockedAddresses = new UsedUp<{ rateLimit: RateLimit }>();
