import { DNS_BEFORE_POST_MS, DNS_NAMES_MAX } from "../contract/limits.ts";
import { type Resolution, resolveHost } from "./resolve.ts";

/** Says what the host of a URL stands for, as far as that is known in time. */
export type Recheck = (url: string) => Promise<Resolution>;

/** What this isolate has been told of hosts, the one told first in front. */
const remembered = new Map<string, { resolution: Resolution; until: number }>();

/**
 * Asks again, before a post, what the host of its URL stands for. What is known is not asked anew
 * until its TTL is over, and posts that begin together share a question, but only those of one
 * dispatch: an invocation may not wait for what another has begun.
 *
 * An answer may come too late for this post, which is then `unknown`, and counts for the next.
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
  // Deleted first: a map keeps the order in which hosts came in.
  remembered.delete(host);
  remembered.set(host, { resolution, until });
  const [oldest] = remembered.keys();
  if (remembered.size > DNS_NAMES_MAX && oldest !== undefined) remembered.delete(oldest);
}
