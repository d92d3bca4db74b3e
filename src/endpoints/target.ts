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
 * Top-level names that do not exist on the public internet. Some are IANA's special-use domain names (RFC 6761, 6762,
 * 7686, 9476; `arpa` is infrastructure only, RFC 3172). ICANN reserves others for private use, and private networks
 * commonly use the rest. `example` is not included, because no name under it resolves, publicly or privately.
 */
const SPECIAL_SUFFIXES = new Set([
  ...["localhost", "local", "test", "invalid", "onion", "alt", "arpa"],
  ...["internal", "corp", "home"],
  ...["lan", "localdomain", "svc", "intranet", "private"],
]);

/** The IP address of Azure's metadata service, which is in a public range. Those of other clouds are in private ones. */
const AZURE_METADATA = "168.63.129.16";

/** The only range of public IPv6 unicast addresses (RFC 4291, IANA). */
const GLOBAL_UNICAST_V6 = ipaddr.parseCIDR("2000::/3");

/**
 * Characters that the parser would drop or replace, and invisible ones at the ends, which come along when a URL is
 * copied. Variation selectors are not among them, because an emoji may end with one.
 */
const CHANGED_BY_PARSER =
  /[\p{Cc}\p{Cs}]|^[[\p{White_Space}\p{Cf}\p{DI}\u2800]--\p{VS}]|[[\p{White_Space}\p{Cf}\p{DI}\u2800]--\p{VS}]$/v;

/** Maximum length of a host, and of each of its labels (RFC 1035). */
const HOST_MAX_LENGTH = 253;
const LABEL_MAX_LENGTH = 63;

/** The separators of labels that NFKC leaves (UTS 46). */
const DOTS = /[.\u3002]/;

/**
 * More combining marks in a row than any language needs (Stream-Safe Text Format, UAX 15). The time to normalize a run
 * grows with the square of its length.
 */
const MARKS = /\p{M}{31}/u;

/** A registered name, or an IP address in brackets (RFC 3986, 3.2.2). The parser also accepts others, such as `"`. */
const HOST = /^([\w.~!$&'()*+,;=-]|%[\da-f]{2})+$|^\[[\da-f:.]+\]$/i;

/** An http or https URI (RFC 3986), without credentials. */
const URI =
  /^https?:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d*)?([/?](%[\da-f]{2}|[\w.~!$&'()*+,;=:@/?-])*)?(#(%[\da-f]{2}|[\w.~!$&'()*+,;=:@/?-])*)?$/i;

/** Characters that the URL parser accepts in a path, query or fragment, although a URI must not have them there. */
const NOT_IN_URI = /%(?![\da-f]{2})|[^\w.~!$&'()*+,;=:@/?%-]/gi;

/** A URL that requests may go to. */
export interface AcceptedUrl {
  /** As a URI (RFC 3986), which every client can parse. */
  uri: string;
  /** The host, as the URL parser has normalized it. */
  host: string;
}

/**
 * Parses the URL of a subscription, or finds why requests to it are blocked. The text is measured first, and parsed
 * once. The time of the runtime's parser grows with the square of the length of a label.
 *
 * @param allowLocal accepts http and private addresses, for local development only.
 */
export function parseTarget(text: string, allowLocal: boolean): AcceptedUrl | TargetFault {
  if (!isMeasured(text)) return "invalid_url";
  const url = parseUrl(text);
  const uri = url && toUri(text, url);
  if (!url || !uri || uri.length > URL_MAX_LENGTH) return "invalid_url";
  const { protocol, hostname: host, port } = url;
  if (protocol !== "https:" && !(allowLocal && protocol === "http:")) return "https_required";
  if (authorityOf(text).includes("@")) return "credentials_not_allowed";
  if (!allowLocal && isPrivateHost(host)) return "private_address";
  return port === "0" || !isDnsName(host) || !HOST.test(host) ? "invalid_url" : { uri, host };
}

/** Returns the URL that the `Location` of a response leads to (RFC 9110, 10.2.2), if a subscription could have it. */
export function resolveLocation(location: string, from: string): string | null {
  const url = isMeasured(location) ? parseUrl(location, from) : null;
  if (!url || !/^https?:$/.test(url.protocol)) return null;
  return url.href.length <= URL_MAX_LENGTH ? url.href : null;
}

/** Whether a URL and its host are short enough for the parser, which would not change what they lead to. */
function isMeasured(text: string): boolean {
  if (text.length > URL_MAX_LENGTH || CHANGED_BY_PARSER.test(text)) return false;
  const authority = authorityOf(text);
  const written = authority.slice(authority.lastIndexOf("@") + 1).replace(/:\d*$/, "");
  const decoded = decode(written);
  if (MARKS.test(decoded)) return false;
  // The parser normalizes a host, which can make eighteen characters of one.
  const host = decoded.normalize("NFKC");
  const labels = host.split(DOTS).map((label) => [...label].length);
  return (
    [...host].length <= HOST_MAX_LENGTH + 1 && labels.every((length) => length <= LABEL_MAX_LENGTH)
  );
}

/** Decodes percent-encoded text, as the URL parser does for a host; any other text is unchanged. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function parseUrl(text: string, from?: string): URL | null {
  try {
    return new URL(text, from);
  } catch {
    return null;
  }
}

/**
 * Returns a URL as a URI. A URI stays as it was written. Any other URL is encoded, as in `https://xn--…` or `%C3%A9`.
 */
function toUri(text: string, { protocol, host, pathname, search, hash }: URL): string {
  if (URI.test(text)) return text;
  const encoded = (part: string) => part.replace(NOT_IN_URI, encodeURIComponent);
  return `${protocol}//${host}${encoded(pathname + search)}${hash && `#${encoded(hash.slice(1))}`}`;
}

/** Whether a host and each of its labels are as short as DNS requires (RFC 1035). */
function isDnsName(hostname: string): boolean {
  const name = hostname.replace(/\.$/, "");
  const isLabel = ({ length }: string) => length > 0 && length <= LABEL_MAX_LENGTH;
  return name.length <= HOST_MAX_LENGTH && name.split(".").every(isLabel);
}

/**
 * Returns the part of a URL or a reference that has the host: from its scheme or slashes to the path. An `@` in it means
 * credentials, even empty ones, which the parser drops.
 */
function authorityOf(text: string): string {
  const [start = ""] = /^([a-z][a-z\d+.-]*:[/\\]*|[/\\]{2,})/i.exec(text) ?? [];
  return start && (text.slice(start.length).split(/[/\\?#]/, 1)[0] ?? "");
}

/** Whether a host, as the URL parser has normalized it, is not public. */
function isPrivateHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").replace(/\.+$/, "");
  if (ipaddr.isValid(host)) return !isPublicAddress(host);
  return !host.includes(".") || SPECIAL_SUFFIXES.has(host.slice(host.lastIndexOf(".") + 1));
}

/** Whether an IP address is public and unicast, and belongs to no cloud metadata service. */
export function isPublicAddress(text: string): boolean {
  const address = ipaddr.parse(text);
  if (address.toString() === AZURE_METADATA || address.range() !== "unicast") return false;
  if (address instanceof ipaddr.IPv4) return true;
  return address.match(GLOBAL_UNICAST_V6) && !isIsatap(address);
}

/** ISATAP embeds an IPv4 address after `::0:5efe` (RFC 5214). */
function isIsatap({ parts }: ipaddr.IPv6): boolean {
  return ((parts[4] ?? 0) & 0xfdff) === 0 && parts[5] === 0x5efe;
}
