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

/** What an isolate remembers of an admitted key: whose it is, for good, and what it has read. */
interface KnownKey {
  keyId: string;
  workspaceId: string;
  /** The newest D1 bookmark that was read or handed out with the key. */
  bookmark: string | null;
}

/** Windows known to be used up, so that a flood costs no call to their gates. */
class UsedUp {
  readonly #windows = new Recent<{ limit: number; resetAt: number; askAt: number }>();

  /** @param askedAt when the gate was asked: before it answered, so that no window is held too long. */
  note(name: string, { limit, resetMs }: Figures, askedAt: number): void {
    const resetAt = askedAt + resetMs;
    this.#windows.set(name, { limit, resetAt, askAt: Math.min(askedAt + REFUSING_MS, resetAt) });
  }

  /** The figures of a window that is known to be used up; `null` when its gate must be asked. */
  figures(name: string, now: number): Figures | null {
    const window = this.#windows.get(name);
    if (!window || now >= window.askAt) return null;
    return { limit: window.limit, remaining: 0, resetMs: window.resetAt - now };
  }

  delete(name: string): void {
    this.#windows.delete(name);
  }
}

// What this isolate has seen. None of it admits a request: it only spares waiting for the gates.
export const knownKeys = new Recent<KnownKey>();
export const usedUpKeys = new UsedUp();
export const blockedAddresses = new UsedUp();
