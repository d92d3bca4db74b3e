import { z } from "@hono/zod-openapi";
import ipaddr from "ipaddr.js";
import { BoundedMap } from "../bounded-map.ts";
import { abortAfter, withTimeout } from "../timing.ts";
import { isPublicAddress, type TargetFault, targetFault } from "./target.ts";

/** Timeout of the DNS-over-HTTPS resolver. Without a response, requests are not blocked. */
const DNS_TIMEOUT_MS = 2_000;
/** How long a look-up may delay a request; a later response is cached for the next one. */
export const DNS_BEFORE_POST_MS = 400;
/** Maximum names an isolate caches. */
const DNS_NAMES_MAX = 1_000;
/** How long an isolate caches a name's resolution. */
const DNS_REMEMBERED_MS = 60_000;

/** The IP addresses that a name resolves to, as far as they matter. */
export type Resolution = "public" | "private" | "unresolvable" | "unknown";

/** Whether to look hosts up: a resolver is configured, and private addresses are not allowed. */
function mustCheckNames(env: Env): boolean {
  return !!env.DNS_OVER_HTTPS_URL && env.ALLOW_LOCAL_WEBHOOKS !== "true";
}

/** Why we refuse to subscribe a URL, by our policy or, with a resolver, by DNS; null if we accept it. */
export async function findUrlFault(
  env: Env,
  url: string,
): Promise<TargetFault | "unresolvable_host" | null> {
  const fault = targetFault(url, env.ALLOW_LOCAL_WEBHOOKS === "true");
  if (fault || !mustCheckNames(env)) return fault;
  const resolution = await resolveHost(env.DNS_OVER_HTTPS_URL, url);
  if (resolution === "private") return "private_address";
  return resolution === "unresolvable" ? "unresolvable_host" : null;
}

const NO_SUCH_NAME = 3;
const ADDRESS_TYPES = [1, 28];

/**
 * Asks a DNS-over-HTTPS resolver (JSON API) what the host of `url` resolves to: `public` if all its
 * addresses are public, `private` if any is not, `unresolvable` if the name does not exist, and
 * `unknown` otherwise, for instance on a timeout.
 */
export async function resolveHost(resolverUrl: string, url: string): Promise<Resolution> {
  const host = new URL(url).hostname;
  if (ipaddr.isValid(host.replace(/^\[|\]$/g, ""))) return "unknown";
  const asked = await Promise.allSettled(["A", "AAAA"].map((type) => ask(resolverUrl, host, type)));
  const answers = asked.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
  const addresses = answers
    .flatMap(({ Answer }) => Answer)
    .filter(({ type, data }) => ADDRESS_TYPES.includes(type) && ipaddr.isValid(data));
  if (addresses.some(({ data }) => !isPublicAddress(data))) return "private";
  // With only one of the two answers, private is certain, but public is not.
  if (answers.length < asked.length) return "unknown";
  if (answers.every(({ Status }) => Status === NO_SUCH_NAME)) return "unresolvable";
  return addresses.length > 0 ? "public" : "unknown";
}

/** A resolver's response; its other fields are ignored. */
const Answer = z.object({
  Status: z.number(),
  Answer: z.array(z.object({ type: z.number(), data: z.string() })).default([]),
});

/** @throws if there is no valid response in time. */
async function ask(resolverUrl: string, name: string, type: string) {
  const url = new URL(resolverUrl);
  url.searchParams.set("name", name);
  url.searchParams.set("type", type);
  const headers = { accept: "application/dns-json" };
  const said = await abortAfter(DNS_TIMEOUT_MS, async (signal) =>
    Answer.parse(await (await fetch(url, { headers, signal })).json()),
  );
  if (said.Status !== 0 && said.Status !== NO_SUCH_NAME)
    throw new Error(`the resolver responded with status ${said.Status}`);
  return said;
}

/** Results this isolate has seen, by host. */
const remembered = new BoundedMap<{ resolution: Resolution; until: number }>(DNS_NAMES_MAX);

/**
 * Creates the function that tells whether we refuse to post to a URL. It is called before each post,
 * because what a host resolves to may change; results are cached for a minute. Posts of one dispatch
 * share a look-up; dispatches do not, because an invocation must not wait for another's promise. An
 * answer that is too late for this post serves later ones.
 */
export function createGuard(env: Env): (url: string) => Promise<boolean> {
  const resolve = mustCheckNames(env) ? createResolver(env.DNS_OVER_HTTPS_URL) : null;
  const allowLocal = env.ALLOW_LOCAL_WEBHOOKS === "true";
  const areFaulty = new Map<string, boolean>();
  return async (url) => {
    const isFaulty = areFaulty.get(url) ?? targetFault(url, allowLocal) !== null;
    areFaulty.set(url, isFaulty);
    return isFaulty || (await resolve?.(url)) === "private";
  };
}

function createResolver(resolverUrl: string): (url: string) => Promise<Resolution> {
  const asking = new Map<string, Promise<Resolution>>();
  const ask = async (host: string, url: string) => {
    const resolution = await resolveHost(resolverUrl, url);
    remembered.set(host, { resolution, until: Date.now() + DNS_REMEMBERED_MS });
    asking.delete(host);
    return resolution;
  };
  return async (url) => {
    const host = new URL(url).hostname;
    const known = remembered.get(host);
    if (known && Date.now() < known.until) return known.resolution;
    const answer = asking.get(host) ?? ask(host, url);
    asking.set(host, answer);
    return withTimeout(DNS_BEFORE_POST_MS, answer, (): Resolution => "unknown");
  };
}
