import { describe, expect, test } from "vitest";
import { type Resolution, resolveHost } from "../../../src/webhooks/resolve.ts";
import { deployedWith, invalid, openApi, openWorkspace } from "../../support/api.ts";

const RESOLVER = "https://dns.example/dns-query?dnssec=1";

describe("a host resolves to", () => {
  test.each<[Resolution, host: string]>([
    ["public", "public.example"],
    ["private", "private.example"],
    ["private", "privatev4.example"],
    ["private", "mixed.example"],
    ["private", "publicv6.example"],
    ["unresolvable", "nxdomain.example"],
    ["private", "half-private.example"],
    ["unknown", "half-public.example"],
    ["unknown", "halfnx.example"],
    ["unknown", "servfail.example"],
    ["unknown", "empty.example"],
    ["unknown", "garbage.example"],
    ["unknown", "odd.example"],
    ["unknown", "null.example"],
    ["unknown", "nulls.example"],
    ["unknown", "down.example"],
    ["unknown", "8.8.8.8"],
    ["unknown", "[2606:4700:4700::1111]"],
  ])("%s: %s", async (resolution, host) => {
    const resolved = await resolveHost(RESOLVER, `https://${host}:8443/in`);
    expect(resolved.resolution).toBe(resolution);
  });
});

describe("an answer is cached", () => {
  test.each([
    ["for its shortest TTL", "ttl-30-public.example", 30_000],
    ["for no longer than 5 minutes", "ttl-3600-public.example", 300_000],
    ["for no less than a second", "ttl-0-private.example", 1_000],
    ["for 10 seconds, if it says nothing", "servfail.example", 10_000],
  ])("%s", async (_, host, validMs) => {
    expect(await resolveHost(RESOLVER, `https://${host}/`)).toMatchObject({ validMs });
  });
});

describe("POST /webhooks with a resolver", () => {
  async function subscribeTo(host: string, overrides: Partial<Env>) {
    const { apiKey } = await openWorkspace();
    const api = openApi(apiKey, deployedWith(overrides));
    return api.post("/v1/webhooks", { url: `https://${host}/in`, events: ["lead.created"] });
  }
  const checked = { DNS_OVER_HTTPS_URL: RESOLVER };

  test("refuses a host with a private address, or that does not exist", async () => {
    for (const host of ["mixed.example", "127.0.0.1"])
      expect(await subscribeTo(host, checked)).toEqual(invalid("url", "private_address"));
    expect(await subscribeTo("nxdomain.example", checked)).toEqual(
      invalid("url", "unresolvable_host"),
    );
  });

  test.each(["public", "half-public", "down"])(
    "accepts a host with public addresses, or if the result is inconclusive: %s.example",
    async (label) => {
      expect((await subscribeTo(`${label}.example`, checked)).status).toBe(201);
    },
  );

  test("accepts a host if the resolver does not answer within 2 s", async () => {
    const startedAt = Date.now();
    expect((await subscribeTo("silent.example", checked)).status).toBe(201);
    const durationMs = Date.now() - startedAt;
    expect(durationMs).toBeGreaterThan(1_900);
    // It would answer after 5 s.
    expect(durationMs).toBeLessThan(4_900);
  });

  test.each(["private.example", "nxdomain.example"])(
    "asks nobody if no resolver is set, or local targets are allowed: %s",
    async (host) => {
      expect((await subscribeTo(host, { DNS_OVER_HTTPS_URL: "" })).status).toBe(201);
      const local = { ...checked, ALLOW_LOCAL_WEBHOOKS: "true" };
      expect((await subscribeTo(host, local)).status).toBe(201);
    },
  );
});
