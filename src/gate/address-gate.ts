import { DurableObject } from "cloudflare:workers";
import ipaddr from "ipaddr.js";
import { toHex } from "../contract/bytes.ts";
import { mac } from "./mac.ts";
import { type Figures, figuresOf, type Rule, take, type Window, windowAt } from "./window.ts";

/**
 * Counts the failed authentications of one address. It never blocks a valid key; it only turns
 * further failures into 429.
 */
export class AddressGate extends DurableObject<Env> {
  #window = this.ctx.storage.kv.get<Window>("window");

  /** Counts one failure; `blocked` if the address had already used up its failures. */
  async fail(now = Date.now()): Promise<{ blocked: boolean; figures: Figures }> {
    const rule = this.#rule();
    const window = windowAt(this.#window, rule, now);
    const taken = take(window, rule);
    if (taken) {
      this.#window = taken;
      this.ctx.waitUntil(this.ctx.storage.put("window", taken, { allowUnconfirmed: true }));
      // Storage is deleted when the window closes: addresses come and go.
      if (taken.count === 1)
        this.ctx.waitUntil(this.ctx.storage.setAlarm(taken.startedAt + rule.windowMs));
    }
    return { blocked: !taken, figures: figuresOf(taken ?? window, rule, now) };
  }

  /** The address's window, without counting a failure. */
  peek(now = Date.now()): Figures {
    const rule = this.#rule();
    return figuresOf(windowAt(this.#window, rule, now), rule, now);
  }

  override async alarm(): Promise<void> {
    const rule = this.#rule();
    // A newer window has opened since: keep it, and try again when it closes.
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
 * The name an address is counted under: IPv4 addresses individually, IPv6 addresses by /64, the
 * smallest block a network customer gets.
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
 * A pseudonym for an address in the logs: always the same for an address, but not reversible
 * without the secret.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`; rotating it changes the pseudonyms.
 * @param name the result of `addressName`.
 */
export async function addressAlias(secret: string, name: string): Promise<string> {
  const bytes = await mac(secret, `address ${name}`);
  return toHex(new Uint8Array(bytes.buffer, 0, 8));
}
