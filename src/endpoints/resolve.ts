import { z } from "@hono/zod-openapi";
import ipaddr from "ipaddr.js";
import { BoundedMap } from "../primitives/bounded-map.ts";
import { abortAfter, withTimeout } from "../primitives/timing.ts";
import { type AcceptedUrl, isPublicAddress, parseTarget, type TargetFault } from "./target.ts";

/** Timeout of the DNS-over-HTTPS resolver. If it does not respond, requests are not blocked. */
const DNS_TIMEOUT_MS = 2_000;
/** How long a look-up may delay a request. A later response is cached for the next request. */
export const DNS_BEFORE_POST_MS = 400;
/** Maximum names that an isolate caches. */
const DNS_NAMES_MAX = 1_000;
/** How long an isolate caches a name's resolution. */
const DNS_CACHED_MS = 60_000;

/** A class of the IP addresses that a name resolves to. */
export type Resolution = "public" | "private" | "unresolvable" | "unknown";

/** Whether to look up hosts: a resolver is configured, and private IP addresses are not allowed. */
function mustCheckNames(env: Env): boolean {
  return !!env.DNS_OVER_HTTPS_URL && env.ALLOW_LOCAL_WEBHOOKS !== "true";
}

/** Parses the URL of a subscription under the policy of this deployment. */
export function readTarget(env: Env, url: string): AcceptedUrl | TargetFault {
  return parseTarget(url, env.ALLOW_LOCAL_WEBHOOKS === "true");
}

/** Finds why a subscription cannot have a URL by DNS, if a resolver is configured; null if it can. */
export async function findDnsFault(
  env: Env,
  { host }: AcceptedUrl,
): Promise<"private_address" | "unresolvable_host" | null> {
  if (!mustCheckNames(env)) return null;
  const resolution = await resolveHost(env.DNS_OVER_HTTPS_URL, host);
  if (resolution === "private") return "private_address";
  return resolution === "unresolvable" ? "unresolvable_host" : null;
}

const NO_SUCH_NAME = 3;
const ADDRESS_TYPES = [1, 28];

/**
 * Resolves a host with a DNS-over-HTTPS resolver (JSON API). The result is `public` if all IP addresses
 * of the host are public, `private` if any is not, and `unresolvable` if the name does not exist. Otherwise, for
 * example after a timeout, it is `unknown`.
 */
export async function resolveHost(resolverUrl: string, host: string): Promise<Resolution> {
  if (ipaddr.isValid(host.replace(/^\[|\]$/g, ""))) return "unknown";
  const proof = Promise.withResolvers<Resolution>();
  const queries = ["A", "AAAA"].map(async (type) => {
    const { Status, addresses } = await queryResolver(resolverUrl, host, type);
    // One response may prove that a host is private. It does not wait for the other, which the host's owner may delay.
    if (addresses.some((address) => !isPublicAddress(address))) proof.resolve("private");
    return { Status, addresses };
  });
  return Promise.race([proof.promise, resolvePublic(queries)]);
}

/** The resolution of a host none of whose addresses is private, which takes both responses. */
async function resolvePublic(
  queries: Promise<{ Status: number; addresses: string[] }>[],
): Promise<Resolution> {
  const results = await Promise.allSettled(queries);
  const responses = results.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  if (responses.length < results.length) return "unknown";
  if (responses.every(({ Status }) => Status === NO_SUCH_NAME)) return "unresolvable";
  return responses.some(({ addresses }) => addresses.length > 0) ? "public" : "unknown";
}

/** A resolver's response; its other fields are ignored. */
const DnsResponse = z.object({
  Status: z.number(),
  Answer: z.array(z.object({ type: z.number(), data: z.string() })).default([]),
});

/** Queries the resolver for the addresses of a type. @throws if there is no valid response in time. */
async function queryResolver(resolverUrl: string, name: string, type: string) {
  const url = new URL(resolverUrl);
  url.searchParams.set("name", name);
  url.searchParams.set("type", type);
  const headers = { accept: "application/dns-json" };
  const response = await abortAfter(DNS_TIMEOUT_MS, async (signal) =>
    DnsResponse.parse(await (await fetch(url, { headers, signal })).json()),
  );
  if (response.Status !== 0 && response.Status !== NO_SUCH_NAME)
    throw new Error(`the resolver responded with status ${response.Status}`);
  const addresses = response.Answer.filter(
    ({ type, data }) => ADDRESS_TYPES.includes(type) && ipaddr.isValid(data),
  ).map(({ data }) => data);
  return { Status: response.Status, addresses };
}

/** Results that this isolate has seen, by host. */
const cached = new BoundedMap<{ resolution: Resolution; until: number }>(DNS_NAMES_MAX);

/**
 * Creates the function that decides whether a URL is forbidden. Call it before each request, because the IP addresses
 * of a host may change; results are cached for a minute. A request looks up its host over its own connection, so a
 * look-up never waits for requests that hang. If these have all other connections, the query for AAAA waits for the one
 * for A, and both must respond within `DNS_BEFORE_POST_MS`. The requests of one invocation share a look-up. Invocations
 * do not, because an invocation must not wait for the promise of another one.
 */
export function createGuard(env: Env): (url: string) => Promise<boolean> {
  const resolve = mustCheckNames(env) ? createResolver(env.DNS_OVER_HTTPS_URL) : null;
  const targets = new Map<string, AcceptedUrl | TargetFault>();
  return async (url) => {
    const target = targets.get(url) ?? readTarget(env, url);
    targets.set(url, target);
    return typeof target === "string" || (await resolve?.(target.host)) === "private";
  };
}

function createResolver(resolverUrl: string): (host: string) => Promise<Resolution> {
  const lookingUp = new Map<string, Promise<Resolution>>();
  const resolve = async (host: string) => {
    const resolution = await resolveHost(resolverUrl, host);
    cached.set(host, { resolution, until: Date.now() + DNS_CACHED_MS });
    lookingUp.delete(host);
    return resolution;
  };
  return async (host) => {
    const known = cached.get(host);
    if (known && Date.now() < known.until) return known.resolution;
    const lookUp = lookingUp.get(host) ?? resolve(host);
    lookingUp.set(host, lookUp);
    return withTimeout(DNS_BEFORE_POST_MS, lookUp, (): Resolution => "unknown");
  };
}
