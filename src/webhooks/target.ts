import ipaddr from "ipaddr.js";
import { URL_MAX_LENGTH } from "../contract/limits.ts";

/** Why a URL is not one that we post to; names of the contract's reasons. */
export type TargetFault =
  | "invalid_url"
  | "https_required"
  | "credentials_not_allowed"
  | "private_address";

/**
 * Names that lead to nobody on the internet: those of IANA's registry of special-use domain names
 * (RFC 6761, 6762, 7686, 9476; all of `arpa` is infrastructure, RFC 3172), those that ICANN keeps for
 * private use, and those that private networks are known to use. `example` is not among them: it is
 * nobody's network, and no name under it exists.
 */
const SPECIAL_SUFFIXES = new Set([
  ...["localhost", "local", "test", "invalid", "onion", "alt", "arpa"],
  ...["internal", "corp", "home"],
  ...["lan", "localdomain", "svc", "intranet", "private"],
]);

/** Public by their range, private by their use: metadata services of clouds. */
const CLOUD_METADATA = ["168.63.129.16", "100.100.100.200", "192.0.0.192"];

/** The one range that holds public IPv6 unicast addresses (RFC 4291, IANA). */
const GLOBAL_UNICAST_V6 = ipaddr.parseCIDR("2000::/3");

/** Control characters and lone surrogates: the parser would drop or replace them without a word. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}]/u;

/**
 * What speaks against posting to `text`; `null` when nothing does. The runtime's own URL parser
 * settles every spelling of a host before it is looked at.
 *
 * @param allowLocal admits http and private addresses: for local development only.
 */
export function targetFault(text: string, allowLocal: boolean): TargetFault | null {
  if (text.length > URL_MAX_LENGTH || UNPRINTABLE.test(text) || !URL.canParse(text))
    return "invalid_url";
  const url = new URL(text);
  if (url.protocol !== "https:" && !(allowLocal && url.protocol === "http:"))
    return "https_required";
  if (url.username || url.password || hasEmptyCredentials(text)) return "credentials_not_allowed";
  if (!allowLocal && isPrivateHost(url.hostname)) return "private_address";
  return null;
}

/** An `@` before the path, though the parser saw no name: `https://@host/`. */
function hasEmptyCredentials(text: string): boolean {
  const authority = text.replace(/^[^:]*:[/\\]*/, "");
  return (authority.split(/[/\\?#]/, 1)[0] ?? "").includes("@");
}

/** Whether a host, as the URL parser gives it, is not a public one. */
function isPrivateHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").replace(/\.+$/, "");
  if (ipaddr.isValid(host)) return !isPublicAddress(host);
  return !host.includes(".") || SPECIAL_SUFFIXES.has(host.slice(host.lastIndexOf(".") + 1));
}

/** Whether an IP address is public unicast, and not known for a private use. */
export function isPublicAddress(text: string): boolean {
  const address = ipaddr.parse(text);
  if (CLOUD_METADATA.includes(address.toString()) || address.range() !== "unicast") return false;
  if (address instanceof ipaddr.IPv4) return true;
  return address.match(GLOBAL_UNICAST_V6) && !isIsatap(address);
}

/** ISATAP carries an IPv4 address behind `::0:5efe` (RFC 5214). */
function isIsatap({ parts }: ipaddr.IPv6): boolean {
  return ((parts[4] ?? 0) & 0xfdff) === 0 && parts[5] === 0x5efe;
}
