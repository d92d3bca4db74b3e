import ipaddr from "ipaddr.js";
import {
  DNS_REMEMBERED_MS,
  DNS_TIMEOUT_MS,
  DNS_UNKNOWN_REMEMBERED_MS,
} from "../contract/limits.ts";
import { isPublicAddress } from "./target.ts";

/** What a resolver says of a name. */
export type Resolution = "public" | "private" | "unresolvable" | "unknown";

/** What a resolver says, and for how long that may be relied on. */
export interface Resolved {
  resolution: Resolution;
  validMs: number;
}

/** Whether hosts are looked up: a resolver is set, and private addresses are not admitted anyway. */
export function mustCheckNames(env: Env): boolean {
  return !!env.DNS_OVER_HTTPS_URL && env.ALLOW_LOCAL_WEBHOOKS !== "true";
}

const NO_SUCH_NAME = 3;
const ADDRESS_TYPES = [1, 28];

/**
 * Asks a DNS-over-HTTPS resolver (JSON API) what the host of `url` stands for: `public` when all of
 * its addresses are, `private` when one is not, `unresolvable` when there is no such name, `unknown`
 * when nothing can be said, which includes no answer in time.
 */
export async function resolveHost(resolverUrl: string, url: string): Promise<Resolved> {
  const host = new URL(url).hostname;
  if (ipaddr.isValid(host.replace(/^\[|\]$/g, ""))) return nothingSaid("unknown");
  const asked = await Promise.allSettled(["A", "AAAA"].map((type) => ask(resolverUrl, host, type)));
  const answers = asked.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
  const records = answers.flatMap(({ Answer }) => Answer);
  const addresses = records.filter(
    ({ type, data }) => ADDRESS_TYPES.includes(type) && ipaddr.isValid(data),
  );
  const validMs = validityOf(records);
  if (addresses.some(({ data }) => !isPublicAddress(data)))
    return { resolution: "private", validMs };
  // Half an answer shows what is private, and not that nothing is.
  if (answers.length < asked.length) return nothingSaid("unknown");
  if (answers.every(({ Status }) => Status === NO_SUCH_NAME)) return nothingSaid("unresolvable");
  return addresses.length > 0 ? { resolution: "public", validMs } : nothingSaid("unknown");
}

function nothingSaid(resolution: Resolution): Resolved {
  return { resolution, validMs: DNS_UNKNOWN_REMEMBERED_MS };
}

/** The shortest time to live of the records, aliases included, within bounds. */
function validityOf(records: { TTL: number }[]): number {
  const shortestMs = Math.min(...records.map(({ TTL }) => TTL)) * 1000;
  return Math.min(Math.max(shortestMs, DNS_REMEMBERED_MS.min), DNS_REMEMBERED_MS.max);
}

interface DnsRecord {
  type: number;
  data: string;
  TTL: number;
}

/**
 * Reads what a resolver answers, without a schema: a start loads none.
 *
 * @throws where it is no answer.
 */
function parseAnswer(value: unknown): { Status: number; Answer: DnsRecord[] } {
  const { Status, Answer = [] } = (value ?? {}) as { Status?: unknown; Answer?: unknown };
  if (typeof Status !== "number" || !Array.isArray(Answer))
    throw new Error("no answer of a resolver");
  return { Status, Answer: Answer.map(parseRecord) };
}

function parseRecord(value: unknown): DnsRecord {
  const { type, data, TTL = 0 } = (value ?? {}) as Partial<Record<keyof DnsRecord, unknown>>;
  if (typeof type !== "number" || typeof data !== "string" || typeof TTL !== "number")
    throw new Error("no record of a resolver");
  return { type, data, TTL };
}

/** @throws where no answer comes in time, or one that is none. */
async function ask(resolverUrl: string, name: string, type: string) {
  const url = new URL(resolverUrl);
  url.searchParams.set("name", name);
  url.searchParams.set("type", type);
  const answer = await fetch(url, {
    headers: { accept: "application/dns-json" },
    signal: AbortSignal.timeout(DNS_TIMEOUT_MS),
  });
  const said = parseAnswer(await answer.json());
  if (said.Status !== 0 && said.Status !== NO_SUCH_NAME)
    throw new Error(`the resolver says ${said.Status}`);
  return said;
}
