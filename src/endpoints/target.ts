import ipaddr from "ipaddr.js";
import { URL_MAX_LENGTH } from "../contract/limits.ts";

/*
 * Endpoints are the URLs to which events are sent. This file has the policy for them. The other files of this folder:
 *
 * - resolve.ts applies the policy to the IP addresses of a host, before each request.
 * - signature.ts signs requests, and secrets.ts stores the secrets that sign.
 * - headers.ts has the custom headers of requests.
 */

/** A reason to block requests to a URL, named as in `details.reason` of the contract. */
export type TargetFault =
  | "invalid_url"
  | "https_required"
  | "credentials_not_allowed"
  | "private_address";

/**
 * Top-level names that do not exist on the public internet: IANA's special-use domain names (RFC 6761, 6762, 7686,
 * 9476; `arpa` is infrastructure only, RFC 3172), those that ICANN reserves for private use, and those that private
 * networks commonly use. `example` is not included, because no name under it resolves, publicly or privately.
 */
const SPECIAL_SUFFIXES = new Set([
  ...["localhost", "local", "test", "invalid", "onion", "alt", "arpa"],
  ...["internal", "corp", "home"],
  ...["lan", "localdomain", "svc", "intranet", "private"],
]);

/** Cloud metadata services, which have IP addresses in public ranges for private use. */
const CLOUD_METADATA = ["168.63.129.16", "100.100.100.200", "192.0.0.192"];

/** The only range of public IPv6 unicast addresses (RFC 4291, IANA). */
const GLOBAL_UNICAST_V6 = ipaddr.parseCIDR("2000::/3");

/** Control characters, lone surrogates and outer spaces, which the parser would drop or replace. */
const CHANGED_BY_PARSER = /[\p{Cc}\p{Cs}]|^ | $/u;

/** A registered name, or an IP address in brackets (RFC 3986, 3.2.2). The parser also accepts others, such as `"`. */
const HOST = /^([\w.~!$&'()*+,;=-]|%[\da-f]{2})+$|^\[[\da-f:.]+\]$/i;

/** An http or https URI (RFC 3986), without credentials. */
const URI =
  /^https?:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d*)?([/?](%[\da-f]{2}|[\w.~!$&'()*+,;=:@/?-])*)?(#(%[\da-f]{2}|[\w.~!$&'()*+,;=:@/?-])*)?$/i;

/** Characters that the URL parser accepts in a path, query or fragment, although a URI must not have them there. */
const NOT_IN_URI = /%(?![\da-f]{2})|[^\w.~!$&'()*+,;=:@/?%-]/gi;

/**
 * Returns a URL as a URI (RFC 3986), which every client can parse. A URI stays as it was written. Any other URL is
 * encoded, as in `https://xn--…` or `%C3%A9`. Text that is not a URL is unchanged.
 */
export function toUri(text: string): string {
  if (URI.test(text) || !URL.canParse(text)) return text;
  const { protocol, host, pathname, search, hash } = new URL(text);
  const encoded = (part: string) => part.replace(NOT_IN_URI, encodeURIComponent);
  return `${protocol}//${host}${encoded(pathname + search)}${hash && `#${encoded(hash.slice(1))}`}`;
}

/**
 * Finds why requests to `text` are blocked; null if they are not. The runtime's own URL parser normalizes the host
 * before it is checked, as it does before a request.
 *
 * @param allowLocal accepts http and private addresses, for local development only.
 */
export function targetFault(text: string, allowLocal: boolean): TargetFault | null {
  if (CHANGED_BY_PARSER.test(text) || !URL.canParse(text) || toUri(text).length > URL_MAX_LENGTH)
    return "invalid_url";
  const url = new URL(text);
  if (url.protocol !== "https:" && !(allowLocal && url.protocol === "http:"))
    return "https_required";
  if (hasCredentials(text)) return "credentials_not_allowed";
  if (!allowLocal && isPrivateHost(url.hostname)) return "private_address";
  return url.port === "0" || !isDnsName(url.hostname) || !HOST.test(url.hostname)
    ? "invalid_url"
    : null;
}

/** Whether a host and each of its labels are as short as DNS requires (RFC 1035). */
function isDnsName(hostname: string): boolean {
  const name = hostname.replace(/\.$/, "");
  return name.length <= 253 && name.split(".").every(({ length }) => length > 0 && length <= 63);
}

/** Whether an `@` precedes the path: credentials, even empty ones, which the parser drops. */
function hasCredentials(text: string): boolean {
  const authority = text.replace(/^[^:]*:[/\\]*/, "");
  return (authority.split(/[/\\?#]/, 1)[0] ?? "").includes("@");
}

/** Whether a host, as the URL parser has normalized it, is not public. */
function isPrivateHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").replace(/\.+$/, "");
  if (ipaddr.isValid(host)) return !isPublicAddress(host);
  return !host.includes(".") || SPECIAL_SUFFIXES.has(host.slice(host.lastIndexOf(".") + 1));
}

/** Whether an IP address is public, unicast, and not that of a cloud metadata service. */
export function isPublicAddress(text: string): boolean {
  const address = ipaddr.parse(text);
  if (CLOUD_METADATA.includes(address.toString()) || address.range() !== "unicast") return false;
  if (address instanceof ipaddr.IPv4) return true;
  return address.match(GLOBAL_UNICAST_V6) && !isIsatap(address);
}

/** ISATAP embeds an IPv4 address after `::0:5efe` (RFC 5214). */
function isIsatap({ parts }: ipaddr.IPv6): boolean {
  return ((parts[4] ?? 0) & 0xfdff) === 0 && parts[5] === 0x5efe;
}
