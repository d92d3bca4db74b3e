import { DurableObject } from "cloudflare:workers";
import ipaddr from "ipaddr.js";
import { toHex } from "../contract/bytes.ts";
import { mac } from "./mac.ts";
import { type Figures, figuresOf, type Rule, take, type Window, windowAt } from "./window.ts";

/**
 * The failed authentications of one address. It never stands in the way of a valid key; it only
 * turns further failures into 429.
 */
export class AddressGate extends DurableObject<Env> {
  #window = this.ctx.storage.kv.get<Window>("window");

  /** Counts one failure; `blocked` when the address had used up its failures before. */
  async fail(now = Date.now()): Promise<{ blocked: boolean; figures: Figures }> {
    const rule = this.#rule();
    const window = windowAt(this.#window, rule, now);
    const taken = take(window, rule);
    if (taken) {
      this.#window = taken;
      this.ctx.waitUntil(this.ctx.storage.put("window", taken, { allowUnconfirmed: true }));
      // What is written here ends with the window: addresses come and go.
      if (taken.count === 1)
        this.ctx.waitUntil(this.ctx.storage.setAlarm(taken.startedAt + rule.windowMs));
    }
    return { blocked: !taken, figures: figuresOf(taken ?? window, rule, now) };
  }

  /** The address's window, without counting. */
  peek(now = Date.now()): Figures {
    const rule = this.#rule();
    return figuresOf(windowAt(this.#window, rule, now), rule, now);
  }

  override async alarm(): Promise<void> {
    const rule = this.#rule();
    // A window that opened meanwhile keeps its count.
    if (windowAt(this.#window, rule, Date.now()) === this.#window) {
      await this.ctx.storage.setAlarm(this.#window.startedAt + rule.windowMs);
    } else {
      this.#window = undefined;
      await this.ctx.storage.deleteAll();
    }
  }

  #rule(): Rule {
    return {
      limit: Number(this.env.AUTH_FAILURES),
      windowMs: Number(this.env.AUTH_FAILURE_WINDOW_SECONDS) * 1000,
    };
  }
}

/**
 * What one address counts as: an IPv4 address by itself, an IPv6 one by its /64, which is the least
 * that one customer of a network holds.
 */
export function addressName(address: string | undefined): string {
  if (!address || !ipaddr.isValid(address)) return "unknown";
  const parsed = ipaddr.process(address);
  if (parsed instanceof ipaddr.IPv4) return parsed.toString();
  return `${parsed.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(":")}::/64`;
}

/**
 * What the logs call an address: the same text for the same one, from which nobody learns it without
 * the secret.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`; once it is rotated, the same address is called otherwise.
 * @param name as `addressName` gives it.
 */
export async function addressAlias(secret: string, name: string): Promise<string> {
  const bytes = await mac(secret, `address ${name}`);
  return toHex(new Uint8Array(bytes.buffer, 0, 8));
}
