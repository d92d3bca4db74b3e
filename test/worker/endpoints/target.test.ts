import { expect, test } from "vitest";
import { parseTarget, resolveLocation, type TargetFault } from "../../../src/endpoints/target.ts";

/** The fault of a URL; null if it has none. */
function faultOf(url: string, allowLocal = false): TargetFault | null {
  const target = parseTarget(url, allowLocal);
  return typeof target === "string" ? target : null;
}

/** URLs with these hosts, which are separated by spaces. */
const to = (hosts: string) => hosts.split(" ").map((host) => `https://${host}/in`);

/** More combining marks in a row than any language has. The time to normalize them is quadratic. */
const MARKS = "\u0301".repeat(31);

/** A URL of this length. */
const long = (length: number) => "https://hooks.example.com/".padEnd(length, "a");

test.each<[what: string, fault: TargetFault | null, ...urls: string[]]>([
  ["a path or none, a port", null, "https://a.example", "HTTPS://HOOKS.Example.COM.:8443/in"],
  ["an @ after the host", null, "https://a.example/@b#@", "https://a.example?b=@"],
  ["no ASCII", null, "https://hooks.example.com/\u{1f33b}?\ufffd=é", ...to("フック.例え.jp")],
  ["2,048 characters", null, long(2048)],
  [
    "a name that only looks private",
    null,
    ...to("localhost.example.com internal.example.com mylocal.example hooks.mytest 10.example.com"),
    ...to("notlocalhost.example home.arpa.example.com hooks.svc.cloud 127.0.0.1.example.com"),
  ],
  [
    "an address next to a range that is not public",
    null,
    ...to("8.8.8.8 1.1.1.1:8443 100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1"),
    ...to("169.253.255.255 192.167.255.255 198.17.255.255 198.20.0.1 223.255.255.254"),
    ...to("168.63.129.17 [2606:4700:4700::1111]:8443 [2003::1] [2001:4860:4860::8888]"),
    ...to("[2606:4700::1:5efe:7f00:1]"),
  ],
  ["nothing", "invalid_url", "", "hooks.example.com", "//hooks.example.com/in", "https://"],
  [
    "spaces or invisible characters at its ends",
    "invalid_url",
    ...[..." \u00a0\u00ad\u200b\u200d\u200e\u2060\u2800\u3000\u3164\ufeff\u{e0001}"].flatMap(
      (one) => [
        `${one}https://a.example/in`,
        `https://a.example/in${one}`,
        `https://a.example${one}`,
      ],
    ),
  ],
  ["as many combining marks as text may have", null, `https://a${MARKS.slice(1)}.example.com/`],
  ["an emoji at its end", null, "https://a.example/\u2764\ufe0f"],
  [
    "what the parser would drop or replace",
    "invalid_url",
    ...["https://a.example/\n", "ht\ntps://@a.example/", "\0https://a.example"],
    ...["https://a.example/\u007f", "https://a.example/\u0085", "https://a.example/\ud800"],
  ],
  ["2,049 characters, as a URI", "invalid_url", long(2049), `https://a.example/${"é".repeat(400)}`],
  [
    "a host that no browser accepts",
    "invalid_url",
    ...to("hooks%20example.com a.example:65536 exa%00mple.com 256.256.256.256 1.2.3.4.5"),
    ...to("0x100000000 [::1 [fe80::1%25eth0] ho%2Fst ho%40st a^b.com foo.09 0..0x300"),
  ],
  [
    "a host that is none in RFC 3986, although the parser accepts it",
    "invalid_url",
    ...to('a"b.example.com {a}.example.com a`b.example.com'),
  ],
  [
    "a host that no resolver accepts",
    "invalid_url",
    ...to(`hooks..example.com .example.com example.com.. ${"a".repeat(64)}.example.com`),
    ...to(`${"🌻".repeat(57)}.example.com ${"a.".repeat(121)}examples.com a.example:0`),
  ],
  [
    "a host that the parser would take long for",
    "invalid_url",
    ...to(`${"例".repeat(64)}.jp ${"%E4%BE%8B".repeat(64)}.jp xn--${"a".repeat(500)}.example.com`),
    ...to(
      `${"例え。".repeat(90)}jp \u00ad${"\u00ad".repeat(253)}a.example a@${"例".repeat(64)}.jp`,
    ),
    ...["https:", "https:\\", "https:////"].map((start) => `${start}${"例".repeat(64)}.jp?@`),
    ...to(`a${MARKS}.example.com a${encodeURIComponent(MARKS)}.example.com`),
  ],
  [
    "a label of 63 characters once it is encoded, and of more units before",
    null,
    ...to(`${"🌻".repeat(56)}.example.com`),
  ],
  [
    "labels and a name of the greatest length",
    null,
    ...to(`${"a".repeat(63)}.example.com. ${"a.".repeat(121)}example.com.:8443`),
    ...to(["。", "．", "｡"].map((dot) => `${"a".repeat(63)}${dot}例え${dot}jp`).join(" ")),
  ],
  [
    "another scheme",
    "https_required",
    ...["http://hooks.example.com/in", "HTTP://127.0.0.1/in", "ftp://a.example/"],
    ...["file:///etc/passwd", "javascript:alert(1)", "blob:https://hooks.example.com/in"],
  ],
  [
    "credentials, even empty ones",
    "credentials_not_allowed",
    ...to("user@a.example user:@a.example user:password@a.example :password@a.example"),
    ...to(`@a.example :@a.example @@a.example user:@${"a".repeat(64)}@a.example`),
    ...to("hooks.example.com%40@8.8.8.8 user@127.0.0.1"),
    ...["https:///@a.example/", "https:@a.example/", "https:\\\\@hooks.example.com\\in"],
  ],
  [
    "a name of this machine or a private network",
    "private_address",
    ...to(
      "localhost LOCALHOST localhost. localhost:8443 App.LocalHost. ｌｏｃａｌhost loc%61lhost",
    ),
    ...to("printer.local Printer.LOCAL.. metadata.google.internal home.arpa local. intranet com"),
    ...to("hooks.onion hooks.test hooks.TEST hooks.invalid a.b.alt 10.in-addr.arpa nas.lan"),
    ...to("hooks.corp hooks.home hooks.localdomain api.default.svc a.intranet a.private:8443"),
  ],
  [
    "a loopback address in any spelling",
    "private_address",
    ...to("127.0.0.1 127.0.0.1. 127.0.0.1:8443 127.1 2130706433 0x7f.1 017700000001 0177.0.0.01"),
    ...to("１２７。０。０。１ ①②⑦.0.0.1 %31%32%37.0.0.1 127%2E0%2E0%2E1 192.0x00A80001"),
  ],
  [
    "an IPv4 address that is not public",
    "private_address",
    ...to("0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 127.255.255.255"),
    ...to("169.254.169.254 0xa9fea9fe 168.63.129.16 0xa83f8110 172.16.0.0 172.31.255.255"),
    ...to("192.168.0.0 192.168.255.255 192.0.0.192 192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.0"),
    ...to("198.19.255.255 192.88.99.1 224.0.0.0 239.255.255.255 240.0.0.0 255.255.255.255"),
  ],
  [
    "an IPv6 address that is not public, or embeds or stands for another one",
    "private_address",
    ...to("[::] [::1]:8443 [::ffff:127.0.0.1] [::ffff:8.8.8.8] [::ffff:0:8.8.8.8] [::8.8.8.8]"),
    ...to("[64:ff9b::8.8.8.8] [64:ff9b:1::1] [2002:808:808::1] [2001::1] [2001:0:4136:e378::1]"),
    ...to("[2606:4700::5efe:7f00:1] [2606:4700::200:5efe:a00:1] [fc00::1] [fd00:ec2::254]"),
    ...to("[fe80::1] [fec0::1] [ff02::1] [ff0e::1] [2001:db8::1] [3fff::1] [2001:2::1]"),
    ...to("[2001:10::1] [2001:20::1] [100::1] [5f00::1] [4000::1] [1fff::1] [8000::1] [e000::1]"),
  ],
])("of a subscription's URL with %s, the fault is %s", (_, fault, ...urls) => {
  for (const url of urls) expect(faultOf(url), url).toBe(fault);
});

test.each<[TargetFault | null, string]>([
  [null, "http://localhost:9000/in"],
  [null, "http://[::1]:9000/in"],
  [null, "https://192.168.1.2/in"],
  [null, "https://hooks.example.com/in"],
  ["invalid_url", "localhost"],
  ["https_required", "ftp://localhost/in"],
  ["credentials_not_allowed", "http://user@localhost/in"],
  ["credentials_not_allowed", "http://@localhost/in"],
])("in a local deployment, where http and private addresses are accepted, %s: %s", (fault, url) => {
  expect(faultOf(url, true)).toBe(fault);
});

test.each([
  ["https://hooks.example.com?a=1&b=@c#d", "https://hooks.example.com?a=1&b=@c#d"],
  ["HTTPS://Hooks.Example.com.:8443/%c3%A9/../#", "HTTPS://Hooks.Example.com.:8443/%c3%A9/../#"],
  ["https://[2606:4700::1111]:8443/", "https://[2606:4700::1111]:8443/"],
  ["https:\\\\hooks.example.com\\in", "https://hooks.example.com/in"],
  ["https:hooks.example.com", "https://hooks.example.com/"],
  ["https://フック.例え.jp/é x", "https://xn--pckwbxc.xn--r8jz45g.jp/%C3%A9%20x"],
  ["https://a.example/%zz|[^`]", "https://a.example/%25zz%7C%5B%5E%60%5D"],
  ["https://a.example/?a[]={1}&b=%#c#[d]", "https://a.example/?a%5B%5D=%7B1%7D&b=%25#c%23%5Bd%5D"],
])("the URI of %s is %s", (url, uri) => {
  for (const written of [url, uri])
    expect(parseTarget(written, false), written).toMatchObject({ uri });
});

/** Different Chinese characters, as a label. The time that the runtime's parser takes for it is quadratic. */
const label = (count: number) =>
  Array.from({ length: count }, (_, i) => String.fromCodePoint(0x4e00 + i)).join("");

/** How long the fastest of five tries takes, in milliseconds. */
function fastest(work: () => unknown): number {
  const times = Array.from({ length: 5 }, () => {
    const startedAt = performance.now();
    work();
    return performance.now() - startedAt;
  });
  return Math.min(...times);
}

test.each([
  ["a host of one long label", `https://${label(2_000)}.example.com/`],
  ["a host of one long label, percent-encoded", `https://${encodeURIComponent(label(1_800))}.com/`],
  ["a host of characters that each stand for many", `https://${"\ufdfa".repeat(5_400)}.com/`],
  ["credentials before a long label", `https://a@${label(5_400)}.example.com/`],
  ["a path that is too long", `https://a.example/${label(16_000)}`],
])("a URL or a `Location` is measured before it is parsed: %s", (_, url) => {
  const from = "https://hooks.example.com/in";
  const plain = fastest(() => new URL(`https://a.example/${"a".repeat(16_000)}`));
  expect(fastest(() => parseTarget(url, false))).toBeLessThan(plain + 10);
  for (const location of [url, url.replace("https:", ""), url.replace("https://", "\\\\")])
    expect(fastest(() => resolveLocation(location, from))).toBeLessThan(plain + 10);
});

test.each([
  ["https://b.example/in", "https://b.example/in"],
  ["/other?a=1", "https://hooks.example.com/other?a=1"],
  ["//b.example/in", "https://b.example/in"],
  ["ftp://b.example/in", null],
  [`//${"a".repeat(64)}.example/in`, null],
  [`/${"a".repeat(2_048)}`, null],
  [`/${"a".repeat(2_022)}`, `https://hooks.example.com/${"a".repeat(2_022)}`],
  [`/${"a".repeat(2_023)}`, null],
  ["/\t/b.example", null],
])("a subscription could have the URL of the `Location` %s, if any: %s", (location, url) => {
  expect(resolveLocation(location, "https://hooks.example.com/in")).toBe(url);
});
