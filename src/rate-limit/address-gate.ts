import { DurableObject } from "cloudflare:workers";
import {
  type RateLimit,
  type Rule,
  rateLimitOf,
  take,
  tighterOf,
  type Window,
  windowAt,
} from "./window.ts";

/** The names under which the failures of an IP address are counted. */
export interface AddressName {
  /** The name of the gate: an IPv4 address, or the /48 of an IPv6 address. */
  network: string;
  /** The part of the network with a window of its own: an IPv4 address, or the /64 of an IPv6 address. */
  block: string;
}

/** A /48 may have this many times the failures of a /64, because one customer may hold all of its 65,536 /64s. */
const NETWORK_FAILURES_MULTIPLE = 16;

/** The result of a gate for one failure. */
interface CountedFailure {
  /**
   * The one that had already used up its failures, the block if both had. Null if neither had, so that this failure was
   * counted.
   */
  blocked: keyof AddressName | null;
  /** The window of the block, or the window of its network if that leaves less. */
  rateLimit: RateLimit;
}

interface StoredWindows {
  network: Window;
  /** The open windows by block. There are few, because the limit of the network bounds the counted failures. */
  blocks: Map<string, Window>;
}

/**
 * Counts the failed authentications of one IPv4 address, or of one IPv6 /48 and each of its /64s. It
 * never blocks a valid key; it only turns further failures into 429.
 */
export class AddressGate extends DurableObject<Env> {
  #stored = this.ctx.storage.kv.get<StoredWindows>("windows");

  /** Counts one failure of `block`, unless it or the network is blocked. */
  async fail(block: string, now = Date.now()): Promise<CountedFailure> {
    const rules = this.#rules();
    const open = this.#windowsAt(block, now);
    const own = take(open.block, rules.block);
    const network = take(open.network, rules.network);
    if (!own || !network)
      return { blocked: own ? "network" : "block", rateLimit: this.#rateLimitOf(open, now) };
    const blocks = this.#openBlocks(now);
    // Storage is deleted when the last window closes, because most IP addresses never come again.
    if (blocks.size === 0)
      this.ctx.waitUntil(this.ctx.storage.setAlarm(now + rules.block.windowMs));
    this.#stored = { network, blocks: blocks.set(block, own) };
    this.ctx.waitUntil(this.ctx.storage.put("windows", this.#stored, { allowUnconfirmed: true }));
    return { blocked: null, rateLimit: this.#rateLimitOf({ block: own, network }, now) };
  }

  override async alarm(): Promise<void> {
    const { block: rule } = this.#rules();
    const windows = this.#stored ? [this.#stored.network, ...this.#stored.blocks.values()] : [];
    const endsAt = Math.max(...windows.map(({ startedAt }) => startedAt + rule.windowMs));
    // Newer windows have opened since, so the alarm is set to the end of the last one.
    if (endsAt > Date.now()) {
      await this.ctx.storage.setAlarm(endsAt);
    } else {
      this.#stored = undefined;
      await this.ctx.storage.deleteAll();
    }
  }

  #windowsAt(block: string, now: number): Record<keyof AddressName, Window> {
    const rules = this.#rules();
    return {
      block: windowAt(this.#stored?.blocks.get(block), rules.block, now),
      network: windowAt(this.#stored?.network, rules.network, now),
    };
  }

  /** Returns the tighter of both windows, with the limit of a block. */
  #rateLimitOf(windows: Record<keyof AddressName, Window>, now: number): RateLimit {
    const rules = this.#rules();
    const block = rateLimitOf(windows.block, rules.block, now);
    const { limit } = block;
    const network = { ...rateLimitOf(windows.network, rules.network, now), limit };
    return tighterOf(block, network);
  }

  #openBlocks(now: number): Map<string, Window> {
    const { block: rule } = this.#rules();
    const all = [...(this.#stored?.blocks ?? [])];
    return new Map(all.filter(([, window]) => windowAt(window, rule, now) === window));
  }

  #rules(): Record<keyof AddressName, Rule> {
    const limit = Number(this.env.AUTH_FAILURES);
    const windowMs = Number(this.env.AUTH_FAILURE_WINDOW_SECONDS) * 1000;
    return {
      block: { limit, windowMs },
      network: { limit: limit * NETWORK_FAILURES_MULTIPLE, windowMs },
    };
  }
}
