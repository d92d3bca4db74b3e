import { join } from "node:path";
import { resolveHost } from "../../src/endpoints/resolve.ts";
import { ROOT } from "../shared/checkout.ts";
import { readConfig } from "../shared/databases.ts";

/** The Worker's variables that decide which webhook URLs are accepted. */
export type UrlRules = Partial<Record<"ALLOW_LOCAL_WEBHOOKS" | "DNS_OVER_HTTPS_URL", string>>;

/**
 * The rules for webhook URLs, and how to tell the user.
 *
 * @param strict those of a deployed service, with the resolver of wrangler.toml or the environment;
 *   otherwise http and private addresses are accepted.
 */
export async function urlRules(strict: boolean): Promise<{ rules: UrlRules; told: string }> {
  if (!strict)
    return {
      rules: { ALLOW_LOCAL_WEBHOOKS: "true" },
      told: "Webhook URLs may use http and private addresses here. A deployed service and\n`npm start -- --strict` reject them.",
    };
  const { vars } = await readConfig(join(ROOT, "wrangler.toml"));
  const resolver = process.env.DNS_OVER_HTTPS_URL ?? String(vars.DNS_OVER_HTTPS_URL ?? "");
  return {
    rules: { DNS_OVER_HTTPS_URL: resolver },
    told: `Strict: webhook URLs must use https and a public host, as in production. ${await lookUps(resolver)}\nNo webhook will arrive here: this machine is not public. Subscribe a tunnel.`,
  };
}

/** Describes how host names are resolved. */
async function lookUps(resolver: string): Promise<string> {
  if (!resolver) return "Hosts are not looked up:\nDNS_OVER_HTTPS_URL is empty.";
  const resolution = await resolveHost(resolver, "example.com").catch(() => "unknown");
  return resolution === "unknown"
    ? `Hosts are not looked up:\n${resolver} does not respond. In production, too, they are then accepted.`
    : `Hosts are looked\nup with ${resolver}.`;
}
