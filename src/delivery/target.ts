import ipaddr from "ipaddr.js";
import { URL_MAX_LENGTH } from "../contract/limits.ts";

/** Why a URL is not one that we post to; names of the contract's reasons. */
export type TargetFault =
  | "invalid_url"
  | "https_required"
  | "credentials_not_allowed"
  | "private_address";

/** Names that mean the machine itself or its own network (RFC 6761, RFC 8375, RFC 6762, ICANN). */
const LOCAL_SUFFIXES = ["localhost", "local", "internal", "home.arpa"];

/** Public by their range, private by their use: metadata services of clouds. */
const CLOUD_METADATA = ["168.63.129.16", "100.100.100.200", "192.0.0.192"];

/** The one range that holds public IPv6 unicast addresses (RFC 4291, IANA). */
const GLOBAL_UNICAST_V6 = ipaddr.parseCIDR("2000::/3");

/**
 * What speaks against posting to `text`; `null` when nothing does. The runtime's own URL parser
 * settles every spelling of a host before it is looked at.
 *
 * @param allowLocal admits http and private addresses: for local development only.
 */
export function targetFault(text: string, allowLocal: boolean): TargetFault | null {
  if (text.length > URL_MAX_LENGTH || !URL.canParse(text)) return "invalid_url";
  const url = new URL(text);
  if (url.protocol !== "https:" && !(allowLocal && url.protocol === "http:"))
    return "https_required";
  if (url.username || url.password || hasEmptyCredentials(text)) return "credentials_not_allowed";
  if (!allowLocal && isPrivateHost(url.hostname)) return "private_address";
  return null;
}

/** An `@` before the path, though the parser saw no name: `https://@host/`. */
function hasEmptyCredentials(text: string): boolean {
  const authority = text.replace(/[\t\n\r]/g, "").replace(/^[^:]*:[/\\]*/, "");
  return (authority.split(/[/\\?#]/, 1)[0] ?? "").includes("@");
}

/** Whether a host, as the URL parser gives it, is not a public one. */
function isPrivateHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").replace(/\.+$/, "");
  if (ipaddr.isValid(host)) return !isPublicAddress(host);
  if (!host.includes(".")) return true;
  return LOCAL_SUFFIXES.some((suffix) => host === suffix || host.endsWith(`.${suffix}`));
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
