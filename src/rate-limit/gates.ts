import { retryTransient } from "../db/errors.ts";
import { BoundedMap } from "../primitives/bounded-map.ts";
import type { StoredKey } from "../workspaces/key-rows.ts";
import type { AddressName } from "./address-gate.ts";
import type { GateResult, KeyAdmission, UncountedRefusals } from "./key-gate.ts";
import { type RateLimit, tighterOf } from "./window.ts";

/* How an isolate calls gates, with retries, and caches their results. */

/** The delay before a retry. After a reset, a new object starts within milliseconds. */
const WAIT_MS = 20;

/**
 * Calls a Durable Object in this deployment's `JURISDICTION`. Retries if the object was reset during the call or was
 * unreachable. A call whose reply was lost may have been carried out, so the call must be safe to repeat. One that
 * counts may count once more for each lost reply.
 *
 * @throws the error of the last call; a call to an overloaded object is not retried.
 */
export function callWithRetries<T extends Rpc.DurableObjectBranded, Reply>(
  { JURISDICTION: jurisdiction }: Env,
  binding: DurableObjectNamespace<T>,
  name: string,
  call: (object: DurableObjectStub<T>) => Reply,
): Promise<Awaited<Reply>> {
  const objects = objectsIn(jurisdiction, binding);
  // Each try gets a new stub, because the stub of an object that was reset stays broken.
  return retryTransient(() => call(objects.getByName(name)), { waitMs: WAIT_MS });
}

/**
 * Returns the objects in a jurisdiction; all objects if it is empty, or in the local runtime, which has none. A plain
 * `wrangler dev` takes the jurisdiction of wrangler.toml.
 */
function objectsIn<T extends Rpc.DurableObjectBranded>(
  jurisdiction: string,
  binding: DurableObjectNamespace<T>,
): DurableObjectNamespace<T> {
  try {
    return jurisdiction ? binding.jurisdiction(jurisdiction as DurableObjectJurisdiction) : binding;
  } catch (error) {
    if (error instanceof Error && error.message.includes("not implemented in workerd"))
      return binding;
    throw error;
  }
}

/** Maximum keys, and maximum IP addresses, that an isolate caches. */
const REMEMBERED_MAX = 10_000;
/** How long an isolate repeats a refusal of a gate without calling it. */
export const REFUSING_MS = 2_000;

/** The last result of a key's gate. */
interface LastResult {
  result: GateResult;
  /** When the gate was called, rather than when it responded, so that no refusal outlasts its window. */
  calledAt: number;
  /** How many reads of its window have begun early, about which the gate has not decided yet. */
  early: { reads: number };
  /** The 429s that this isolate has repeated, and that no call of the gate has counted. */
  uncounted: UncountedRefusals | undefined;
}

/** A read that has begun before the gate has decided. */
interface EarlyRead {
  /** The last admission of its key. */
  known: KeyAdmission;
  /** To be called once the gate has decided, or could not be called. */
  end(): void;
}

/**
 * Caches the last result of each key's gate. It admits no request. It lets a read begin before the gate has decided, and
 * repeats refusals, so that a flood of requests that are refused calls a gate about once in two seconds.
 */
export class KeyResults {
  readonly #last = new BoundedMap<LastResult>(REMEMBERED_MAX);

  /** Whether a result of the key's gate is cached. */
  has(keyHash: string): boolean {
    return this.#last.get(keyHash) !== undefined;
  }

  /** Caches the result of a call, unless it is that of an earlier call, whose reply has come late. */
  set(keyHash: string, result: GateResult, calledAt: number): void {
    const known = this.#last.get(keyHash);
    if (known && calledAt < known.calledAt) return;
    // Reads whose client has hung up never end, so they are counted until the end of their window only.
    const early = known && hasWindow(known, calledAt) ? known.early : { reads: 0 };
    this.#last.set(keyHash, { result, calledAt, early, uncounted: known?.uncounted });
  }

  /**
   * Begins a read before the gate has decided. Returns null if the read must wait, because as many reads have begun early as
   * the window had requests left. So the gate refuses few of them, even in a flood.
   */
  beginEarlyRead(keyHash: string): EarlyRead | null {
    const known = this.#last.get(keyHash);
    if (known?.result.verdict !== "admitted") return null;
    const { result, early } = known;
    if (early.reads >= result.rateLimit.remaining) return null;
    early.reads++;
    return { known: result, end: () => early.reads-- };
  }

  /**
   * Returns the last refusal, with the window as of `now`, and counts it if it is a 429. Returns null if the gate must be
   * called: it did not refuse, was called longer than `REFUSING_MS` ago, or the window has requests left, each of which
   * the gate counts.
   */
  repeatRefusal(keyHash: string, now: number): Exclude<GateResult, KeyAdmission> | null {
    const known = this.#last.get(keyHash);
    if (!known || now >= known.calledAt + REFUSING_MS) return null;
    const { result } = known;
    if (result.verdict === "unknown_key") return result;
    if (result.verdict === "admitted") return null;
    const rateLimit = windowAsOf(now, result.rateLimit, known.calledAt);
    if (!rateLimit || rateLimit.remaining > 0) return null;
    // A workspace without access still gets 403 once its window is used up, which is no 429 to count.
    if (result.verdict === "rate_limited")
      known.uncounted = { count: (known.uncounted?.count ?? 0) + 1, at: now };
    return { ...result, rateLimit };
  }

  /** Returns the repeated 429s for a call of the gate, which counts them. */
  takeUncounted(keyHash: string): UncountedRefusals | undefined {
    const known = this.#last.get(keyHash);
    const uncounted = known?.uncounted;
    if (known) known.uncounted = undefined;
    return uncounted;
  }

  /** Makes the next request with the key call its gate, because the status of the key has changed. */
  stopRepeating(keyHash: string): void {
    const known = this.#last.get(keyHash);
    // The result is as old as can be. It stays, because the repeated 429s are still to be counted.
    if (known) known.calledAt = 0;
  }
}

/** Caches the windows of the failures of IP addresses, by the names of their networks and blocks. */
export class FailingAddresses {
  readonly #last = new BoundedMap<{ rateLimit: RateLimit; calledAt: number }>(REMEMBERED_MAX);

  /** Caches a window, as of when the gate was called; a later one stays. */
  set(name: string, rateLimit: RateLimit, calledAt: number): void {
    if (calledAt < (this.#last.get(name)?.calledAt ?? 0)) return;
    this.#last.set(name, { rateLimit, calledAt });
  }

  /** Returns the tighter window of an address as of `now`; null if they have ended, or are not cached. */
  find({ network, block }: AddressName, now: number): RateLimit | null {
    return tighterOf(this.#windowOf(network, now), this.#windowOf(block, now));
  }

  /**
   * Returns the window that blocks an address, as of `now`. Returns null if the gate must be called: it was called longer
   * than `REFUSING_MS` ago, or the windows have failures left, each of which the gate counts.
   */
  findUsedUp({ network, block }: AddressName, now: number): RateLimit | null {
    const usedUp = (name: string) => {
      const rateLimit = this.#windowOf(name, now);
      const isRecent = now < (this.#last.get(name)?.calledAt ?? 0) + REFUSING_MS;
      return isRecent && rateLimit?.remaining === 0 ? rateLimit : null;
    };
    return tighterOf(usedUp(network), usedUp(block));
  }

  #windowOf(name: string, now: number): RateLimit | null {
    const known = this.#last.get(name);
    return known ? windowAsOf(now, known.rateLimit, known.calledAt) : null;
  }
}

/** Whether the window of a result is still open. */
function hasWindow({ result, calledAt }: LastResult, now: number): boolean {
  return result.verdict !== "unknown_key" && windowAsOf(now, result.rateLimit, calledAt) !== null;
}

/** Returns a window as of `now`, from a result of a gate; null if it has ended. */
function windowAsOf(now: number, rateLimit: RateLimit, calledAt: number): RateLimit | null {
  const resetMs = calledAt + rateLimit.resetMs - now;
  return resetMs > 0 ? { ...rateLimit, resetMs } : null;
}

// The caches of this isolate.
export const keyResults = new KeyResults();
export const failingAddresses = new FailingAddresses();

/**
 * Invalidates the key status that the gate of a key has cached. A key that was never used has no gate. Isolates that have
 * just cached a refusal may repeat it, with 429 or 403, for up to two more seconds; this isolate does so only if the
 * gate refuses a request while this call is under way.
 */
export async function invalidateKey(
  env: Env,
  { keyHash, lastUsedAt }: Pick<StoredKey, "keyHash" | "lastUsedAt">,
): Promise<void> {
  if (lastUsedAt === null) return;
  await callWithRetries(env, env.KEY_GATE, keyHash, (gate) => gate.forget());
  keyResults.stopRepeating(keyHash);
}
