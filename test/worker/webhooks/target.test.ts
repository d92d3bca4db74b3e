import { describe, expect, test } from "vitest";
import {
  isPublicAddress,
  type TargetFault,
  targetFault,
  toUri,
} from "../../../src/webhooks/target.ts";

function refused(fault: TargetFault, urls: string[]): [TargetFault, string][] {
  return urls.map((url) => [fault, url]);
}

/** URLs with these hosts. */
function to(hosts: string[]): string[] {
  return hosts.map((host) => `https://${host}/in`);
}

describe("a subscription's URL is accepted", () => {
  test.each([
    "https://hooks.example.com",
    "https://hooks.example.com/in?a=1&b=@c#d",
    "https://HOOKS.Example.COM./in",
    "HTTPS://hooks.example.com/in",
    "https://hooks.example.com/@team/in",
    "https://hooks.example.com/in#@",
    "https://hooks.example.com?a=@",
    "https://hooks.example.com/\u{1f33b}?\ufffd=é",
    "https://フック.例え.jp/in",
    // Names that only look like those of a private network.
    ...to(["localhost.example.com", "internal.example.com", "mylocal.example", "hooks.mytest"]),
    ...to(["notlocalhost.example", "home.arpa.example.com", "test.example.com", "hooks.svc.cloud"]),
    ...to(["onion.lan.example", "127.0.0.1.example.com", "10.example.com", "xn--caf-dma.example"]),
    // The addresses next to ranges that are not public.
    ...to(["8.8.8.8", "1.1.1.1:8443", "100.63.255.255", "100.128.0.1", "172.15.255.255"]),
    ...to(["172.32.0.1", "169.253.255.255", "192.167.255.255", "198.17.255.255", "198.20.0.1"]),
    ...to(["223.255.255.254", "168.63.129.17", "[2606:4700:4700::1111]:8443", "[2003::1]"]),
    ...to(["[2a00:1450:4007:80e::200e]", "[2001:4860:4860::8888]"]),
    `https://hooks.example.com/${"a".repeat(2048 - "https://hooks.example.com/".length)}`,
  ])("%s", (url) => {
    expect(targetFault(url, false)).toBeNull();
  });
});

describe("a subscription's URL is refused", () => {
  test.each([
    ...refused("invalid_url", [
      " https://hooks.example.com/in",
      "https://hooks.example.com/in ",
      "",
      "hooks.example.com",
      "//hooks.example.com/in",
      "https://",
      "https://?",
      "https://:443/",
      "https://hooks example.com/",
      "https://hooks.example.com:65536/",
      "https://hooks.exa%00mple.com/",
      "https://256.256.256.256/",
      "https://1.2.3.4.5/",
      "https://0x100000000/",
      "https://[::1/",
      "https://[fe80::1%25eth0]/",
      // Hosts of the web platform tests (url/resources/urltestdata.json) that browsers refuse.
      ...to([
        "％４１.com",
        "\ufffd.com",
        "%zz%66%a.com",
        "ho%2Fst",
        "ho%40st",
        "a^b.com",
        "foo.09",
      ]),
      ...to(["foo.0x4", "09.2.3.4", "1.2.3.4.5.", "0..0x300", "0xffffffff1", "[::1.2.3.4x]"]),
      // Characters that the parser would drop or replace.
      "https://hooks.example.com/in\n",
      "https://hooks.exa\tmple.com/in",
      "ht\ntps://@hooks.example.com/in",
      "\u0000https://hooks.example.com/in",
      "https://hooks.example.com/\u001f",
      "https://hooks.example.com/\u007f",
      "https://hooks.example.com/\u0085",
      "https://hooks.example.com/\ud800",
      "https://\udfff.example.com/",
      `https://hooks.example.com/${"a".repeat(2049 - "https://hooks.example.com/".length)}`,
      // As a URI, it is longer.
      `https://hooks.example.com/${"é".repeat(400)}`,
    ]),
    ...refused("https_required", [
      "http://hooks.example.com/in",
      "HTTP://127.0.0.1/in",
      "ftp://hooks.example.com/in",
      "wss://hooks.example.com/in",
      "file:///etc/passwd",
      "javascript:alert(1)",
      "data:text/plain,a",
      "blob:https://hooks.example.com/in",
    ]),
    ...refused("credentials_not_allowed", [
      "https://user@hooks.example.com/in",
      "https://user:@hooks.example.com/in",
      "https://user:password@hooks.example.com/in",
      "https://:password@hooks.example.com/in",
      "https://@hooks.example.com/in",
      "https://:@hooks.example.com/in",
      "https://@@hooks.example.com/in",
      "https:///@hooks.example.com/in",
      "https:@hooks.example.com/in",
      "https:\\\\@hooks.example.com\\in",
      "https://hooks.example.com%40@8.8.8.8/in",
      "https://user@127.0.0.1/in",
    ]),
    ...refused("private_address", [
      // Names of this machine or its network.
      ...to(["localhost", "LOCALHOST", "localhost.", "localhost:8443", "App.LocalHost."]),
      ...to(["printer.local", "Printer.LOCAL.", "metadata.google.internal", "home.arpa"]),
      ...to([
        "ROUTER.Home.Arpa.",
        "local.",
        "intranet",
        "com",
        "ｌｏｃａｌｈｏｓｔ",
        "loc%61lhost",
      ]),
      // Special-use names, and those common in private networks.
      ...to(["vww6ybal4bd7szmgncyruucpgfkqahzddi37ktceo3ah7ngmcopnpyyd.onion", "hooks.onion."]),
      ...to(["hooks.test", "hooks.TEST", "hooks.invalid", "hooks.alt", "a.b.c.alt"]),
      ...to(["10.in-addr.arpa", "ipv4only.arpa", "service.arpa", "hooks.internal"]),
      ...to(["nas.lan", "hooks.corp", "hooks.home", "hooks.localdomain", "api.default.svc"]),
      ...to(["hooks.intranet", "hooks.private", "hooks.private:8443", "ｈooks.ｌan"]),
      // A loopback address, in every spelling.
      ...to(["127.0.0.1", "127.0.0.1.", "127.0.0.1:8443", "127.1", "127.0.1", "2130706433"]),
      ...to(["0x7f000001", "0x7f.1", "0X7F.0.0.0x1", "017700000001", "0177.0.0.01", "1２7.0.0.1"]),
      ...to(["１２７。０。０。１", "①②⑦.0.0.1", "%31%32%37.0.0.1", "127%2E0%2E0%2E1"]),
      ...to(["%30%78%63%30%2e%30%32%35%30.01", "０Ｘｃ０．０２５０．０１", "192.0x00A80001"]),
      // The first and last address of every IPv4 range that is not public.
      ...to(["0", "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255"]),
      ...to(["100.64.0.0", "100.127.255.255", "100.100.100.200", "127.255.255.255"]),
      ...to(["169.254.0.0", "169.254.169.254", "169.254.255.255", "168.63.129.16"]),
      ...to(["2852039166", "0xa9fea9fe", "169.254.43518", "0xa83f8110", "10.1"]),
      ...to(["172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"]),
      ...to(["192.0.0.0", "192.0.0.192", "192.0.0.255", "192.0.2.1", "198.51.100.1"]),
      ...to(["203.0.113.1", "198.18.0.0", "198.19.255.255", "192.88.99.1"]),
      ...to(["224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.254", "255.255.255.255"]),
      // IPv6: everything outside global unicast, and addresses that embed or stand for another one.
      ...to(["[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::1]:8443"]),
      ...to(["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:8.8.8.8]", "[::ffff:0:8.8.8.8]"]),
      ...to(["[::127.0.0.1]", "[::8.8.8.8]", "[::a9fe:a9fe]"]),
      ...to(["[64:ff9b::7f00:1]", "[64:ff9b::8.8.8.8]", "[64:ff9b:1::1]"]),
      ...to(["[2002:7f00:1::]", "[2002:808:808::1]", "[2001::1]", "[2001:0:4136:e378::1]"]),
      ...to(["[2606:4700::5efe:7f00:1]", "[2606:4700::200:5efe:a00:1]", "[fe80::5efe:a00:1]"]),
      ...to(["[fc00::1]", "[fd12:3456:789a::1]", "[fdff::]", "[fd00:ec2::254]"]),
      ...to(["[fe80::1]", "[febf::1]", "[fec0::1]", "[ff00::1]", "[ff02::1]", "[ff0e::1]"]),
      ...to(["[2001:db8::1]", "[3fff::1]", "[2001:2::1]", "[2001:10::1]", "[2001:20::1]"]),
      ...to(["[100::1]", "[5f00::1]", "[4000::1]", "[1fff::1]", "[8000::1]", "[e000::1]"]),
    ]),
  ])("%s: %j", (fault, url) => {
    expect(targetFault(url, false)).toBe(fault);
  });
});

test.each([
  ["https://hooks.example.com?a=1&b=@c#d", "https://hooks.example.com?a=1&b=@c#d"],
  ["HTTPS://Hooks.Example.com.:8443/%c3%A9/../#", "HTTPS://Hooks.Example.com.:8443/%c3%A9/../#"],
  ["https://[2606:4700::1111]:8443/", "https://[2606:4700::1111]:8443/"],
  ["https:\\\\hooks.example.com\\in", "https://hooks.example.com/in"],
  ["https:hooks.example.com", "https://hooks.example.com/"],
  ["https://フック.例え.jp/é x", "https://xn--pckwbxc.xn--r8jz45g.jp/%C3%A9%20x"],
  ["https://hooks.example.com/%zz|[^`]", "https://hooks.example.com/%25zz%7C%5B%5E%60%5D"],
  [
    "https://hooks.example.com/?a[]={1}&b=%#c#[d]",
    "https://hooks.example.com/?a%5B%5D=%7B1%7D&b=%25#c%23%5Bd%5D",
  ],
  ["no URL", "no URL"],
])("the URI of %s is %s", (url, uri) => {
  expect(toUri(url)).toBe(uri);
  expect(toUri(uri)).toBe(uri);
});

describe("a local deployment", () => {
  test.each([
    "http://localhost:9000/in",
    "http://[::1]:9000/in",
    "https://192.168.1.2/in",
    "https://hooks.example.com/in",
  ])("also accepts http and private addresses: %s", (url) => {
    expect(targetFault(url, true)).toBeNull();
  });

  test.each<[TargetFault, string]>([
    ["invalid_url", "localhost"],
    ["invalid_url", "http://"],
    ["https_required", "ftp://localhost/in"],
    ["credentials_not_allowed", "http://user@localhost/in"],
    ["credentials_not_allowed", "http://@localhost/in"],
  ])("still refuses, with %s: %s", (fault, url) => {
    expect(targetFault(url, true)).toBe(fault);
  });
});

test.each([
  [true, ["8.8.8.8", "2606:4700:4700::1111"]],
  [false, ["127.0.0.1", "168.63.129.16", "::1", "::ffff:8.8.8.8", "fd00:ec2::254"]],
])("an address from DNS is public or not: %s, %j", (isPublic, addresses) => {
  expect(addresses.filter((address) => isPublicAddress(address) !== isPublic)).toEqual([]);
});
