import { DNS_BEFORE_POST_MS, DNS_NAMES_MAX } from "../contract/limits.ts";
import { type Resolution, resolveHost } from "./resolve.ts";

/** Tells what kind of address a URL's host resolves to, as far as is known in time. */
export type Recheck = (url: string) => Promise<Resolution>;

/** Results this isolate has seen, by host; oldest first. */
const remembered = new Map<string, { resolution: Resolution; until: number }>();

/**
 * Resolves a URL's host again before each post. Results are cached until their TTL expires. Posts
 * of the same dispatch share a look-up; dispatches do not, because an invocation must not wait for
 * a promise of another.
 *
 * If the answer arrives too late for this post, the result is `unknown`; later posts find it in the
 * cache.
 */
export function createRecheck(resolverUrl: string): Recheck {
  const asking = new Map<string, Promise<Resolution>>();
  const ask = async (host: string, url: string) => {
    const { resolution, validMs } = await resolveHost(resolverUrl, url);
    remember(host, resolution, Date.now() + validMs);
    asking.delete(host);
    return resolution;
  };
  return async (url) => {
    const host = new URL(url).hostname;
    const known = remembered.get(host);
    if (known && Date.now() < known.until) return known.resolution;
    const answer = asking.get(host) ?? ask(host, url);
    asking.set(host, answer);
    return Promise.race([answer, later("unknown")]);
  };
}

function later(resolution: Resolution): Promise<Resolution> {
  return new Promise((resolve) => setTimeout(resolve, DNS_BEFORE_POST_MS, resolution));
}

function remember(host: string, resolution: Resolution, until: number): void {
  // Deleted first, so that the map stays sorted by age.
  remembered.delete(host);
  remembered.set(host, { resolution, until });
  const [oldest] = remembered.keys();
  if (remembered.size > DNS_NAMES_MAX && oldest !== undefined) remembered.delete(oldest);
}
