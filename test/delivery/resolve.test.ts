import { describe, expect, test } from "vitest";
import { type Resolution, resolveHost } from "../../src/delivery/resolve.ts";
import { deployedWith, openApi, openWorkspace, refusal } from "../support/api.ts";

const RESOLVER = "https://dns.example/dns-query?dnssec=1";

describe("a host stands for", () => {
  test.each<[Resolution, host: string]>([
    ["public", "public.example"],
    ["private", "private.example"],
    ["private", "privatev4.example"],
    ["public", "mixed.example"],
    ["public", "publicv6.example"],
    ["unresolvable", "nxdomain.example"],
    ["unknown", "halfnx.example"],
    ["unknown", "servfail.example"],
    ["unknown", "empty.example"],
    ["unknown", "garbage.example"],
    ["unknown", "odd.example"],
    ["unknown", "null.example"],
    ["unknown", "down.example"],
    ["unknown", "8.8.8.8"],
    ["unknown", "[2606:4700:4700::1111]"],
  ])("%s: %s", async (resolution, host) => {
    expect(await resolveHost(RESOLVER, `https://${host}:8443/in`)).toBe(resolution);
  });
});

describe("POST /webhooks with a resolver", () => {
  async function subscribeTo(host: string, overrides: Partial<Env>) {
    const { apiKey } = await openWorkspace();
    const api = openApi(apiKey, deployedWith(overrides));
    return api.post("/v1/webhooks", { url: `https://${host}/in`, events: ["lead.created"] });
  }
  const checked = { DNS_OVER_HTTPS_URL: RESOLVER };
  const refused = (reason: "private_address" | "unresolvable_host") =>
    refusal(400, "invalid_request", { parameter: "url", reason });

  test.each(["private.example", "privatev4.example"])(
    "refuses a host whose addresses are all private: %s",
    async (host) => {
      expect(await subscribeTo(host, checked)).toEqual(refused("private_address"));
    },
  );

  test("refuses a host that does not exist", async () => {
    expect(await subscribeTo("nxdomain.example", checked)).toEqual(refused("unresolvable_host"));
  });

  test.each(["public", "mixed", "publicv6", "empty", "servfail", "garbage", "odd", "null", "down"])(
    "accepts a host of which that cannot be said: %s.example",
    async (label) => {
      expect((await subscribeTo(`${label}.example`, checked)).status).toBe(201);
    },
  );

  test("accepts a host that the resolver says nothing about within 2 s", async () => {
    const startedAt = Date.now();
    expect((await subscribeTo("silent.example", checked)).status).toBe(201);
    const durationMs = Date.now() - startedAt;
    expect(durationMs).toBeGreaterThan(1_900);
    expect(durationMs).toBeLessThan(4_000);
  });

  test.each(["private.example", "nxdomain.example"])(
    "asks nobody when there is none, or when local targets are admitted: %s",
    async (host) => {
      expect((await subscribeTo(host, { DNS_OVER_HTTPS_URL: "" })).status).toBe(201);
      const local = { ...checked, ALLOW_LOCAL_WEBHOOKS: "true" };
      expect((await subscribeTo(host, local)).status).toBe(201);
    },
  );

  test("refuses a private address by the URL alone, without asking", async () => {
    expect(await subscribeTo("127.0.0.1", checked)).toEqual(refused("private_address"));
  });
});
