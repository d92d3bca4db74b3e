import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import type { Cloudflare } from "../shared/cloudflare.ts";
import { isAnswering } from "./smoke.ts";

const Domains = z.array(z.object({ hostname: z.string(), service: z.string() }));

/**
 * Whether requests to an address already reach the Worker. Cloudflare knows it of a custom domain, where another API or
 * a DNS record for every name of the zone may answer until then. Elsewhere, any answer counts, and so does a timeout. A
 * Worker that only fails must not be taken for a new address, at which a version gets the traffic before it is tested.
 */
export async function isServed(
  { call }: Cloudflare,
  { name, routes = [] }: Unstable_Config,
  address: string,
): Promise<boolean> {
  const { hostname } = new URL(address);
  const isCustomDomain = routes.some(
    (route) => typeof route !== "string" && route.custom_domain && route.pattern === hostname,
  );
  // Before it is attached, its name is not looked up: a resolver may remember for half an hour that there was none.
  if (!isCustomDomain) return isAnswering(address);
  const path = `/workers/domains?hostname=${encodeURIComponent(hostname)}`;
  const domains = await call(Domains, "GET", path);
  return domains.some((domain) => domain.hostname === hostname && domain.service === name);
}
