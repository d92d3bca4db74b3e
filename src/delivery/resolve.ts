import ipaddr from "ipaddr.js";
import { DNS_TIMEOUT_MS } from "../contract/limits.ts";
import { isPublicAddress } from "./target.ts";

/** What a resolver says of a name. */
export type Resolution = "public" | "private" | "unresolvable" | "unknown";

const NO_SUCH_NAME = 3;
const ADDRESS_TYPES = [1, 28];

/**
 * Asks a DNS-over-HTTPS resolver (JSON API) what the host of `url` stands for: `private` when it has
 * addresses and none is public, `unresolvable` when there is no such name, `unknown` when nothing
 * can be said, which includes no answer in time.
 */
export async function resolveHost(resolverUrl: string, url: string): Promise<Resolution> {
  const host = new URL(url).hostname;
  if (ipaddr.isValid(host.replace(/^\[|\]$/g, ""))) return "unknown";
  try {
    const answers = await Promise.all(["A", "AAAA"].map((type) => ask(resolverUrl, host, type)));
    if (answers.every(({ Status }) => Status === NO_SUCH_NAME)) return "unresolvable";
    const addresses = answers
      .flatMap(({ Answer = [] }) => Answer)
      .filter(({ type, data }) => ADDRESS_TYPES.includes(type) && ipaddr.isValid(data));
    if (addresses.length === 0) return "unknown";
    return addresses.some(({ data }) => isPublicAddress(data)) ? "public" : "private";
  } catch {
    return "unknown";
  }
}

interface DnsAnswer {
  Status: number;
  Answer?: { type: number; data: string }[];
}

async function ask(resolverUrl: string, name: string, type: string): Promise<DnsAnswer> {
  const url = new URL(resolverUrl);
  url.searchParams.set("name", name);
  url.searchParams.set("type", type);
  const answer = await fetch(url, {
    headers: { accept: "application/dns-json" },
    signal: AbortSignal.timeout(DNS_TIMEOUT_MS),
  });
  return answer.json();
}
