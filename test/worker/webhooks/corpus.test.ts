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

/** Well-known spellings of private hosts meant to bypass filters. */
const BYPASSES = [
  "127.0.0.1",
  "127.1",
  "127.0.1",
  "0",
  "0.0.0.0",
  "2130706433",
  "0x7f000001",
  "0x7f.1",
  "017700000001",
  "0177.0.0.1",
  "0177.0.0.0x1",
  "127.000.000.001",
  "0x7f.0x0.0x0.0x1",
  "①②⑦.⓪.⓪.①",
  "１２７.０.０.１",
  "127。0。0。1",
  "127｡0｡0｡1",
  "127．0．0．1",
  "%31%32%37.0.0.1",
  "127.0.0.1.",
  "127.127.127.127",
  "localhost",
  "LOCALHOST",
  "localhost.",
  "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
  "foo.localhost",
  "printer.local",
  "printer.local.",
  "db.internal",
  "metadata.google.internal",
  "router.home.arpa",
  "hooks.onion",
  "hooks.test",
  "hooks.invalid.",
  "HOOKS.ALT",
  "1.0.0.127.in-addr.arpa",
  "nas.lan",
  "db.default.svc",
  "intranet",
  "intranet.",
  "169.254.169.254",
  "2852039166",
  "0xa9fea9fe",
  "0251.0376.0251.0376",
  "425.510.425.510",
  "169.254.43518",
  "[::ffff:a9fe:a9fe]",
  "[::ffff:169.254.169.254]",
  "[fd00:ec2::254]",
  "168.63.129.16",
  "0xa83f8110",
  "100.100.100.200",
  "192.0.0.192",
  "10.1",
  "172.16.0.1",
  "192.168.1",
  "100.64.0.1",
  "198.18.0.1",
  "224.0.0.1",
  "255.255.255.255",
  "[::]",
  "[::1]",
  "[0:0:0:0:0:0:0:1]",
  "[::ffff:7f00:1]",
  "[::7f00:1]",
  "[64:ff9b::7f00:1]",
  "[64:ff9b:1::1]",
  "[2002:7f00:1::]",
  "[2001::1]",
  "[2001:0:7f00:1::]",
  "[fe80::1]",
  "[fc00::1]",
  "[fec0::1]",
  "[ff02::1]",
  "[2001:db8::1]",
  "[100::1]",
  "[2a00:1450:4007::5efe:7f00:1]",
  "[2a00:1450:4007::200:5efe:7f00:1]",
  "[4000::1]",
  "[5f00::1]",
  "[3fff::1]",
  "user@127.0.0.1",
  "public.example@127.0.0.1",
  "127.0.0.1:443",
  "[::1]:443",
];

const PUBLIC = [
  "example.com",
  "hooks.example.com:8443",
  "EXAMPLE.COM",
  "example.com.",
  "xn--bcher-kva.example",
  "bücher.example",
  "8.8.8.8",
  "134744072",
  "[2606:4700:4700::1111]",
  "[2a00:1450:4007:80e::200e]:8443",
  "local.example.com",
  "internal.example",
  "onion.example.com",
  "hooks.contest",
  "a.b.c.d.e.example.org",
  "1.1.1.1",
  "172.15.0.1",
  "172.32.0.1",
  "100.63.0.1",
  "100.128.0.1",
  "198.17.0.1",
  "198.20.0.1",
  "223.255.255.255",
];

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

test("no spelling of a private host is accepted", () => {
  for (const host of BYPASSES) expect(targetFault(`https://${host}/`, false), host).not.toBeNull();
});

test("no public host is refused", () => {
  for (const host of PUBLIC)
    expect(targetFault(`https://${host}/hooks?a=b@c`, false), host).toBeNull();
});
