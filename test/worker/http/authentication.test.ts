import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { nameAddress } from "../../../src/http/authentication.ts";
import type { AddressGate } from "../../../src/rate-limit/address-gate.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import {
  authorizedBy,
  deployedWith,
  EMPTY_PAGE,
  freshAddress,
  inventedKey,
  openApi,
  openWorkspace,
  Platform,
  rateLimitOf,
  refusal,
  revokedKey,
  send,
  success,
  unknownKey,
  withoutRateLimit,
} from "../../support/api.ts";
import { jumpTo } from "../../support/deliveries.ts";

const SERVED = success(200, EMPTY_PAGE);
const REFUSED = refusal(401, "invalid_api_key");
const DENIED = refusal(403, "workspace_access_denied");

function mistyped(key: string): string {
  return key.slice(0, -1) + (key.endsWith("0") ? "1" : "0");
}

describe("a key", () => {
  test("is accepted as a bearer token, whatever the case of the scheme", async () => {
    const { apiKey } = await openWorkspace();
    for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR"])
      expect(await authorizedBy(`${scheme} ${apiKey}`)).toEqual(SERVED);
  });

  test("may follow its scheme after several spaces (RFC 9110, 11.4)", async () => {
    const { apiKey } = await openWorkspace();
    expect(await authorizedBy(`Bearer   ${apiKey}`)).toEqual(SERVED);
  });

  test("that is missing, malformed, mistyped, invented, unknown or revoked gets the same 401 to the byte", async () => {
    const { apiKey: key } = await openWorkspace();
    const keys = [
      ...[`"${key}"`, `${key},${key}`, `${key} ${key}`, key.slice(0, -1), `${key}0`],
      ...[key.toLowerCase(), key.replace("live", "test"), key.replace("key_live_", "")],
      ...["k".repeat(8_000), mistyped(key), await inventedKey(), await unknownKey()],
      await revokedKey(),
    ];
    const authorizations = [
      ...[null, "", "Bearer", "Bearer ", "Basic dXNlcjpwYXNzd29yZA==", key, `Token ${key}`],
      ...[`Bearer: ${key}`, `Bearer${key}`, `Bearer\t${key}`, `Basic ${key}, Bearer ${key}`],
      ...keys.map((each) => `Bearer ${each}`),
    ];
    const bare = withoutRateLimit(await authorizedBy(null));
    for (const authorization of authorizations) {
      const answer = await authorizedBy(authorization);
      expect(answer, authorization ?? "no header").toEqual(REFUSED);
      expect(withoutRateLimit(answer)).toEqual(bare);
      expect(rateLimitOf(answer)).toEqual({ limit: 20, remaining: 19, resetSeconds: 300 });
    }
  });

  test("that is unknown is looked up again after two seconds", async () => {
    const getByName = vi.fn((name: string) => env.KEY_GATE.getByName(name));
    const fetch = deployedWith({ KEY_GATE: { getByName } as unknown as Env["KEY_GATE"] });
    const api = openApi(await unknownKey(), fetch);
    const startedAt = Date.now();
    for (const [ms, lookUps] of [
      [0, 1],
      [1_999, 1],
      [2_000, 2],
    ] as const) {
      jumpTo(startedAt + ms);
      expect(await api.get("/v1/leads")).toEqual(REFUSED);
      expect(getByName).toHaveBeenCalledTimes(lookUps);
    }
  });

  test.each<[string, (keyId: string) => Promise<unknown>]>([
    ["revoked", (keyId) => Platform.revokeApiKey({ keyId })],
    ["rolled without an overlap", (keyId) => Platform.rollApiKey({ keyId, overlapSeconds: 0 })],
  ])("that is %s is rejected everywhere once the call has returned", async (_, end) => {
    const { workspaceId, keyId, apiKey, api } = await openWorkspace({ requestsPerWindow: 15 });
    const second = await Platform.createApiKey({ workspaceId });
    expect(await api.get("/v1/leads")).toEqual(SERVED);
    const underWay = Array.from({ length: 20 }, () => api.get("/v1/leads"));
    await end(keyId);
    const after = await Promise.all(Array.from({ length: 10 }, () => api.get("/v1/leads")));
    for (const answer of after) expect(answer).toEqual(REFUSED);
    for (const { status } of await Promise.all(underWay)) expect([200, 401, 429]).toContain(status);
    await evictDurableObject(env.KEY_GATE.getByName(await hashApiKey(apiKey)));
    expect(await api.get("/v1/leads")).toEqual(REFUSED);
    expect(await openApi(second.apiKey).get("/v1/leads")).toEqual(SERVED);
  });

  test.each(["/v1/nowhere", "/v1/leads?limit=0"])(
    "that was revoked gets the whole 401 of a missing key, even if its route has failed first: %s",
    async (path) => {
      const { keyId, api } = await openWorkspace();
      // This isolate then knows the key, so the next read does not wait for the gate.
      expect(await api.get("/v1/leads")).toEqual(SERVED);
      await Platform.revokeApiKey({ keyId });
      const [revoked, missing] = [await api.get(path), await send(path)];
      expect(revoked).toEqual(REFUSED);
      expect(withoutRateLimit(revoked)).toEqual(withoutRateLimit(missing));
      expect(rateLimitOf(revoked)).toEqual(rateLimitOf(missing));
    },
  );

  test.each([
    ["quota", 429, 200],
    ["access", 403, 403],
  ])(
    "that was rotated, with no %s left, is rejected as unknown within two seconds of its expiry",
    async (what, before, ofNew) => {
      const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 1 });
      expect(await api.get("/v1/leads")).toEqual(SERVED);
      const rolledAt = Date.now();
      jumpTo(rolledAt);
      const { apiKey } = await Platform.rollApiKey({ keyId, overlapSeconds: 3 });
      if (what === "access") await Platform.setWorkspaceAccess({ workspaceId, granted: false });
      jumpTo(rolledAt + 2_000);
      expect((await api.get("/v1/leads")).status).toBe(before);
      jumpTo(rolledAt + 5_500);
      expect(await api.get("/v1/leads")).toEqual(REFUSED);
      expect((await openApi(apiKey).get("/v1/leads")).status).toBe(ofNew);
    },
  );
});

test("A workspace gets 403 for all its keys while its access is denied, and 200 again afterwards", async () => {
  const { workspaceId, api } = await openWorkspace();
  const another = async () => openApi((await Platform.createApiKey({ workspaceId })).apiKey);
  const apis = [api, await another()];
  for (const one of apis) expect((await one.get("/v1/leads")).status).toBe(200);
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  apis.push(await another());
  const revoked = await Platform.createApiKey({ workspaceId });
  await Platform.revokeApiKey({ keyId: revoked.keyId });
  for (const one of apis) expect(await one.get("/v1/leads")).toEqual(DENIED);
  for (let twice = 0; twice < 2; twice++)
    expect(await Platform.setWorkspaceAccess({ workspaceId, granted: true })).toEqual({});
  for (const one of apis) expect(await one.get("/v1/leads")).toEqual(SERVED);
  expect(await openApi(revoked.apiKey).get("/v1/leads")).toEqual(REFUSED);
});

describe("an address that fails to authenticate", () => {
  test("gets twenty 401s and then 429s for any failure", async () => {
    const { apiKey } = await openWorkspace();
    const address = freshAddress();
    const keys = ["nonsense", await inventedKey(), await unknownKey(), await revokedKey()];
    const failures = [null, ...keys.map((key) => `Bearer ${key}`)];
    for (let remaining = 19; remaining >= 0; remaining--) {
      const answer = await authorizedBy(failures[remaining % 5] ?? null, address);
      expect(answer).toEqual(REFUSED);
      expect(rateLimitOf(answer)).toMatchObject({ limit: 20, remaining });
    }
    for (const failure of failures) {
      const answer = await authorizedBy(failure, address);
      const { resetSeconds, ...rest } = rateLimitOf(answer);
      expect(answer).toEqual(refusal(429, "rate_limited", { retry_after_seconds: resetSeconds }));
      expect(answer.headers["retry-after"]).toBe(String(resetSeconds));
      expect(rest).toEqual({ limit: 20, remaining: 0 });
      expect(resetSeconds).toBeGreaterThan(290);
      expect(resetSeconds).toBeLessThanOrEqual(300);
    }
    const served = await authorizedBy(`Bearer ${apiKey}`, address);
    expect(served).toEqual(SERVED);
    expect(rateLimitOf(served)).toEqual({ limit: 600, remaining: 599, resetSeconds: 60 });
    expect((await authorizedBy(null, address)).status).toBe(429);
    expect(rateLimitOf(await authorizedBy(null, freshAddress()))).toMatchObject({ remaining: 19 });
  });

  test("is blocked with its /64 if it is IPv6, and with its /48 once that has failed 320 times", async () => {
    const { apiKey } = await openWorkspace();
    const getByName = vi.fn((name: string) => env.ADDRESS_GATE.getByName(name));
    const fetch = deployedWith({ ADDRESS_GATE: { getByName } as unknown as Env["ADDRESS_GATE"] });
    const from = (block: string, headers = {}) => {
      const all = { "CF-Connecting-IP": `2001:db8:48:${block}`, ...headers };
      return send("/v1/leads", { headers: all }, fetch);
    };
    const gate = env.ADDRESS_GATE.getByName("2001:db8:48::/48");
    const fail = (count: number, block: (i: number) => string) =>
      runInDurableObject(gate, (object: AddressGate) =>
        Promise.all(Array.from({ length: count }, (_, i) => object.fail(block(i)))),
      );
    await fail(20, () => "2001:db8:48:7::/64");
    expect((await from("7:ffff:ffff:ffff:ffff")).status).toBe(429);
    await fail(298, (i) => `block ${i}`);
    for (const block of ["8::1", "9::1"]) expect(await from(block)).toEqual(REFUSED);
    jumpTo(Date.now());
    const refused = await from("a::1");
    const { resetSeconds } = rateLimitOf(refused);
    expect(refused).toEqual(refusal(429, "rate_limited", { retry_after_seconds: resetSeconds }));
    expect(rateLimitOf(refused)).toMatchObject({ limit: 20, remaining: 0 });
    expect(getByName.mock.calls).toEqual(Array(4).fill(["2001:db8:48::/48"]));
    // This isolate knows that the /48 is blocked.
    const repeated = await from("b::1");
    expect(repeated.status).toBe(429);
    expect(rateLimitOf(repeated)).toMatchObject({ limit: 20, remaining: 0 });
    expect(getByName).toHaveBeenCalledTimes(4);
    expect(await from("b::1", { Authorization: `Bearer ${apiKey}` })).toEqual(SERVED);
    expect((await authorizedBy(null, "2001:db8:49::1")).status).toBe(401);
  });

  test("is not charged for a valid key, a workspace without access or a used-up quota", async () => {
    const { workspaceId, apiKey } = await openWorkspace({ requestsPerWindow: 1 });
    const address = freshAddress();
    for (let i = 0; i < 3; i++) await authorizedBy(`Bearer ${apiKey}`, address);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await authorizedBy(`Bearer ${apiKey}`, address);
    expect(rateLimitOf(await authorizedBy(null, address))).toMatchObject({ remaining: 19 });
  });
});

test.each([
  ["192.0.2.1", "192.0.2.1", "192.0.2.1"],
  ["::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1"],
  ["2001:DB8:1:2::1", "2001:db8:1:2::/64", "2001:db8:1::/48"],
  ["2001:0db8:0001:0002:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64", "2001:db8:1::/48"],
  ["2001:db8:1:3::1", "2001:db8:1:3::/64", "2001:db8:1::/48"],
  ["::1", "0:0:0:0::/64", "0:0:0::/48"],
  [undefined, "unknown", "unknown"],
  ["somebody", "unknown", "unknown"],
])("an address counts by itself or its /64 in its /48: %s, %s, %s", (address, block, network) => {
  expect(nameAddress(address)).toEqual({ block, network });
});
