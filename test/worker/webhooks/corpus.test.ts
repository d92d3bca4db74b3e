import { expect, test } from "vitest";
import { targetFault } from "../../../src/webhooks/target.ts";
import authorities from "./corpus/wpt-authorities.json";

/**
 * IANA's special-purpose registries, written out independently: the ranges the policy must refuse.
 */
const SPECIAL_V4 = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  "168.63.129.16/32",
];
const SPECIAL_V6 = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

/**
 * Whether a URL's host is public, determined independently of the policy: by bits and the tables
 * above.
 */
function isPublic(hostname: string): boolean {
  const v4 = /^(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(hostname.replace(/\.$/, ""));
  if (v4) return !SPECIAL_V4.some((range) => within(bitsV4(v4.slice(1).join(".")), bitsV4, range));
  if (hostname.startsWith("[")) {
    const bits = bitsV6(hostname.slice(1, -1));
    const isatap = /^(.{64})000000[01]0{9}0101111011111110/.test(bits);
    return (
      bits.startsWith("001") && !isatap && !SPECIAL_V6.some((range) => within(bits, bitsV6, range))
    );
  }
  const labels = hostname.replace(/\.+$/, "").split(".");
  return (
    labels.length > 1 &&
    !/\.(localhost|local|test|invalid|onion|alt|arpa|internal|corp|home|lan|localdomain|svc|intranet|private)$/.test(
      labels.join("."),
    )
  );
}

/** Whether a text has no control characters and no lone surrogates. */
function isPrintable(text: string): boolean {
  return [...text].every((character) => {
    const code = character.codePointAt(0) ?? 0;
    return code > 0x1f && !(code >= 0x7f && code <= 0x9f) && !(code >= 0xd800 && code <= 0xdfff);
  });
}

function within(bits: string, toBits: (text: string) => string, range: string): boolean {
  const [address = "", length] = range.split("/");
  return bits.startsWith(toBits(address).slice(0, Number(length)));
}

function bitsV4(address: string): string {
  return address
    .split(".")
    .map((part) => Number(part).toString(2).padStart(8, "0"))
    .join("");
}

/** The bits of an IPv6 address, as the URL parser writes it. */
function bitsV6(address: string): string {
  const [head = "", tail] = address.split("::");
  const parts = (text: string | undefined) => (text ? text.split(":") : []);
  const missing = 8 - parts(head).length - parts(tail).length;
  const all =
    tail === undefined
      ? parts(head)
      : [...parts(head), ...Array(missing).fill("0"), ...parts(tail)];
  return all.map((part) => Number.parseInt(part, 16).toString(2).padStart(16, "0")).join("");
}

test("of the hosts in the web platform tests, exactly the public ones are accepted", () => {
  const counts = { accepted: 0, refused: 0, unreadable: 0 };
  for (const authority of authorities) {
    const text = `https://${authority}/hooks`;
    const fault = targetFault(text, false);
    if (!URL.canParse(text) || !isPrintable(text)) {
      expect(fault, text).toBe("invalid_url");
      counts.unreadable++;
      continue;
    }
    const { hostname, username, password } = new URL(text);
    const named = username !== "" || password !== "" || authority.includes("@");
    const expected = isPublic(hostname) && !named;
    expect(fault === null, `${text} → ${hostname}`).toBe(expected);
    counts[expected ? "accepted" : "refused"]++;
  }
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(20);
});
