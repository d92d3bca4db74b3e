import type { Figures } from "./window.ts";

/** Keys, and addresses, that one isolate remembers. */
const REMEMBERED_MAX = 10_000;
/** For how long an isolate refuses on its own what a gate has refused. */
const REFUSING_MS = 2_000;

/** The names seen last, and what is known of each. */
class Recent<T> {
  readonly #values = new Map<string, T>();

  get(name: string): T | undefined {
    return this.#values.get(name);
  }

  set(name: string, value: T): void {
    // Deleted first: a map keeps the order in which names came in.
    this.#values.delete(name);
    this.#values.set(name, value);
    const [oldest] = this.#values.keys();
    if (this.#values.size > REMEMBERED_MAX && oldest !== undefined) this.#values.delete(oldest);
  }

  delete(name: string): void {
    this.#values.delete(name);
  }
}

/** What an isolate remembers of an admitted key: whose it is, for good, and what it has read where. */
interface KnownKey {
  keyId: string;
  workspaceId: string;
  /** The name of the database that the workspace lived in when the key was admitted last. */
  database: string;
  /** The newest bookmark of that database that was read or handed out with the key. */
  bookmark: string | null;
}

/** Refusals whose window is used up, so that a flood costs no call to its gate. */
class UsedUp<Refusal extends { figures: Figures }> {
  readonly #refusals = new Recent<{
    refusal: Refusal;
    resetAt: number;
    askAt: number;
    /** Requests that were refused by it. */
    count: number;
  }>();

  /**
   * @param askedAt when the gate was asked: before it answered, so that no window is held too long.
   * @param until when the refusal ends at the latest, Unix milliseconds.
   */
  note(name: string, refusal: Refusal, askedAt: number, until = Number.POSITIVE_INFINITY): void {
    const resetAt = askedAt + refusal.figures.resetMs;
    const askAt = Math.min(askedAt + REFUSING_MS, resetAt, until);
    const count = this.#refusals.get(name)?.count ?? 0;
    this.#refusals.set(name, { refusal, resetAt, askAt, count });
  }

  /** The refusal of what is known to be used up, as it is now; `null` when its gate must be asked. */
  find(name: string, now: number): Refusal | null {
    const known = this.#refusals.get(name);
    if (!known || now >= known.askAt) return null;
    const { refusal, resetAt } = known;
    known.count++;
    return { ...refusal, figures: { ...refusal.figures, remaining: 0, resetMs: resetAt - now } };
  }

  /** Forgets a refusal, and gives it with how often, and about when, it was found. */
  take(name: string): { refusal: Refusal; count: number; at: number } | null {
    const known = this.#refusals.get(name);
    this.#refusals.delete(name);
    return known ? { refusal: known.refusal, count: known.count, at: known.askAt } : null;
  }

  delete(name: string): void {
    this.#refusals.delete(name);
  }
}

/** What a gate says of a key that it does not admit. */
export interface KeyRefusal {
  verdict: "access_denied" | "quota_exceeded";
  keyId: string;
  workspaceId: string;
  figures: Figures;
  /** When the key expires, and is refused as unknown, Unix milliseconds; null for one without an end. */
  expiresAt: number | null;
}

// What this isolate has seen. None of it admits a request: it only spares waiting for the gates.
export const knownKeys = new Recent<KnownKey>();
export const usedUpKeys = new UsedUp<KeyRefusal>();
export const blockedAddresses = new UsedUp<{ figures: Figures }>();
