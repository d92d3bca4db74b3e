import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import {
  authorizedBy,
  deployedWith,
  EMPTY_PAGE,
  freshAddress,
  inventedKey,
  openWorkspace,
  rateLimitOf,
  refusal,
  revokedKey,
  send,
  success,
  unknownKey,
} from "../../support/api.ts";

describe("an address that fails to authenticate", () => {
  test("gets 401 twenty times, counted down, and then 429", async () => {
    const address = freshAddress();
    for (let remaining = 19; remaining >= 0; remaining--) {
      const answer = await authorizedBy(null, address);
      expect(answer).toEqual(refusal(401, "invalid_api_key"));
      expect(rateLimitOf(answer)).toMatchObject({ limit: 20, remaining });
    }
    const answer = await authorizedBy(null, address);
    const { resetSeconds } = rateLimitOf(answer);
    expect(answer).toEqual(refusal(429, "rate_limited", { retry_after_seconds: resetSeconds }));
    expect(answer.headers["retry-after"]).toBe(String(resetSeconds));
    expect(rateLimitOf(answer)).toMatchObject({ limit: 20, remaining: 0 });
    expect(resetSeconds).toBeGreaterThan(290);
    expect(resetSeconds).toBeLessThanOrEqual(300);
  });

  test("is blocked whatever the failure: missing, malformed, invented, unknown or revoked key", async () => {
    const address = freshAddress();
    const revoked = await revokedKey();
    const keys = ["nonsense", await inventedKey(), await unknownKey(), revoked];
    const failures = [null, ...keys.map((key) => `Bearer ${key}`)];
    for (let i = 0; i < 20; i++) await authorizedBy(failures[i % 5] ?? null, address);
    for (const failure of failures)
      expect((await authorizedBy(failure, address)).status, String(failure)).toBe(429);
  });

  test("is not blocked by a browser's preflights, which are refused like any request without a key", async () => {
    const address = freshAddress();
    const preflight = (headers: Record<string, string> = {}) =>
      send("/v1/leads", {
        method: "OPTIONS",
        headers: {
          "CF-Connecting-IP": address,
          Origin: "https://page.example",
          "Access-Control-Request-Method": "GET",
          "Access-Control-Request-Headers": "authorization",
          ...headers,
        },
      });
    for (let i = 0; i < 25; i++) expect(await preflight()).toEqual(refusal(401, "invalid_api_key"));
    expect(rateLimitOf(await preflight())).toMatchObject({ limit: 20, remaining: 20 });
    // With a key it is no preflight, but a guess.
    await preflight({ Authorization: `Bearer ${await inventedKey()}` });
    expect(rateLimitOf(await preflight())).toMatchObject({ limit: 20, remaining: 19 });
    for (let i = 0; i < 20; i++) await authorizedBy(null, address);
    expect((await preflight()).status).toBe(429);
    expect((await preflight()).headers).not.toHaveProperty("access-control-allow-origin");
  });

  test("is still served with a valid key when blocked, with the key's rate limit, and no other address is blocked", async () => {
    const { apiKey } = await openWorkspace();
    const address = freshAddress();
    for (let i = 0; i < 21; i++) await authorizedBy(null, address);
    const answer = await authorizedBy(`Bearer ${apiKey}`, address);
    expect(answer).toEqual(success(200, EMPTY_PAGE));
    expect(rateLimitOf(answer)).toEqual({ limit: 600, remaining: 599, resetSeconds: 60 });
    expect((await authorizedBy(null, address)).status).toBe(429);
    expect(rateLimitOf(await authorizedBy(null, freshAddress()))).toMatchObject({ remaining: 19 });
  });

  test("shares them with its /64 if it is IPv6, and with nobody else", async () => {
    for (let i = 0; i < 20; i++) await authorizedBy(null, `2001:db8:7:7:${i}::1`);
    expect((await authorizedBy(null, "2001:db8:7:7:ffff:ffff:ffff:ffff")).status).toBe(429);
    expect((await authorizedBy(null, "2001:db8:7:8::1")).status).toBe(401);
  });

  test("is blocked with its /48 once that has failed 320 times, from however many /64s", async () => {
    const { apiKey } = await openWorkspace();
    const called: string[] = [];
    const getByName = (name: string) => {
      called.push(name);
      return env.ADDRESS_GATE.getByName(name);
    };
    const ADDRESS_GATE = { getByName } as unknown as Env["ADDRESS_GATE"];
    const fetch = deployedWith({ ADDRESS_GATE });
    const ask = (subnet: number, more = {}) => {
      const headers = { "CF-Connecting-IP": `2001:db8:48:${subnet.toString(16)}::1`, ...more };
      return send("/v1/leads", { headers }, fetch);
    };
    const askFrom = (subnets: number[]) => Promise.all(subnets.map((subnet) => ask(subnet)));
    const first = await askFrom(Array.from({ length: 330 }, (_, i) => i));
    expect(first.filter(({ status }) => status === 401)).toHaveLength(320);
    expect(first.filter(({ status }) => status === 429)).toHaveLength(10);
    // One call each, of the /48's gate.
    expect(called).toEqual(Array.from({ length: 330 }, () => "2001:db8:48::/48"));

    const another = await ask(0xffff);
    const { resetSeconds } = rateLimitOf(another);
    expect(another).toEqual(refusal(429, "rate_limited", { retry_after_seconds: resetSeconds }));
    expect(rateLimitOf(another)).toMatchObject({ limit: 20, remaining: 0 });
    const more = await askFrom(Array.from({ length: 40 }, (_, i) => 0x1000 + i));
    expect(new Set(more.map(({ status }) => status))).toEqual(new Set([429]));
    // This isolate knows that the /48 is blocked.
    expect(called.length).toBeLessThan(330 + 40);

    expect((await ask(0xffff, { Authorization: `Bearer ${apiKey}` })).status).toBe(200);
    expect((await authorizedBy(null, "2001:db8:49::1")).status).toBe(401);
  });

  test("is not charged for a valid key, a workspace without access or a used-up quota", async () => {
    const { workspaceId, apiKey } = await openWorkspace({ requestsPerWindow: 1 });
    const address = freshAddress();
    for (let i = 0; i < 3; i++) await authorizedBy(`Bearer ${apiKey}`, address);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await authorizedBy(`Bearer ${apiKey}`, address);
    expect(rateLimitOf(await authorizedBy(null, address))).toMatchObject({ remaining: 19 });
  });
});
