import { evictDurableObject, listDurableObjectIds } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { KeyGate } from "../../../src/quota/key-gate.ts";
import {
  authorizedBy,
  deployedWith,
  EMPTY_PAGE,
  freshAddress,
  inventedKey,
  openApi,
  openWorkspace,
  rateLimitOf,
  refusal,
  revokedKey,
  success,
  unknownKey,
  withoutRateLimit,
} from "../../support/api.ts";

function mistyped(key: string): string {
  return key.slice(0, -1) + (key.endsWith("0") ? "1" : "0");
}

describe("a key", () => {
  test("is accepted as a bearer token, whatever the case of the scheme", async () => {
    const { apiKey } = await openWorkspace();
    for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR"])
      expect(await authorizedBy(`${scheme} ${apiKey}`)).toEqual(success(200, EMPTY_PAGE));
  });

  test("that is missing, malformed, mistyped, invented, unknown or revoked gets the same 401 to the byte", async () => {
    const { apiKey } = await openWorkspace();
    const revoked = await revokedKey();
    const authorizations = [
      null,
      "",
      "Bearer",
      "Bearer ",
      "Basic dXNlcjpwYXNzd29yZA==",
      apiKey,
      `Token ${apiKey}`,
      `Bearer: ${apiKey}`,
      `Bearer${apiKey}`,
      `Bearer\t${apiKey}`,
      `Bearer "${apiKey}"`,
      `Bearer ${apiKey},${apiKey}`,
      `Bearer ${apiKey} ${apiKey}`,
      `Basic ${apiKey}, Bearer ${apiKey}`,
      `Bearer ${apiKey.slice(0, -1)}`,
      `Bearer ${apiKey}0`,
      `Bearer ${apiKey.toLowerCase()}`,
      `Bearer ${apiKey.replace("key_live_", "key_test_")}`,
      `Bearer ${apiKey.replace("key_live_", "")}`,
      `Bearer ${"k".repeat(8_000)}`,
      `Bearer ${mistyped(apiKey)}`,
      `Bearer ${await inventedKey()}`,
      `Bearer ${await unknownKey()}`,
      `Bearer ${revoked}`,
    ];
    const answers = await Promise.all(authorizations.map((text) => authorizedBy(text)));
    for (const [i, answer] of answers.entries()) {
      expect(answer, authorizations[i] ?? "no header").toEqual(refusal(401, "invalid_api_key"));
      expect(withoutRateLimit(answer)).toEqual(withoutRateLimit(answers[0] as typeof answer));
      expect(rateLimitOf(answer)).toEqual({ limit: 20, remaining: 19, resetSeconds: 300 });
    }
  });

  test("that is mistyped or invented, however well, costs neither an object call nor a look-up, flood or not", async () => {
    const { apiKey } = await openWorkspace();
    const address = freshAddress();
    await authorizedBy(`Bearer ${apiKey}`, address);
    const before = await listDurableObjectIds(env.KEY_GATE);
    const lookUps = vi.spyOn(KeyGate.prototype, "admit");
    await authorizedBy(`Bearer ${mistyped(apiKey)}`);
    await authorizedBy(`Bearer ${mistyped(await unknownKey())}`);
    const flood = Array.from({ length: 120 }, async () =>
      authorizedBy(`Bearer ${await inventedKey()}`, address),
    );
    const statuses = (await Promise.all(flood)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 401)).toHaveLength(20);
    expect(statuses.filter((status) => status === 429)).toHaveLength(100);
    expect(await listDurableObjectIds(env.KEY_GATE)).toEqual(before);
    expect(lookUps).not.toHaveBeenCalled();
    // A valid key is served even from the blocked address.
    expect(await authorizedBy(`Bearer ${apiKey}`, address)).toEqual(success(200, EMPTY_PAGE));
    expect(lookUps).toHaveBeenCalledTimes(1);
    lookUps.mockRestore();
  });

  test("stays valid when the checksum secret is rotated", async () => {
    const { apiKey } = await openWorkspace();
    const API_KEY_CHECKSUM_KEYS = `new:${btoa("n".repeat(32))},${env.API_KEY_CHECKSUM_KEYS}`;
    const rotated = openApi(apiKey, deployedWith({ API_KEY_CHECKSUM_KEYS }));
    expect(await rotated.get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
  });

  test("is refused everywhere once its revocation has returned, and no other key is", async () => {
    const { workspaceId, keyId, apiKey, api } = await openWorkspace();
    const second = await exports.Platform.createApiKey({ workspaceId });
    expect(await api.get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
    const before = Array.from({ length: 20 }, () => api.get("/v1/leads"));
    await exports.Platform.revokeApiKey({ keyId });
    const after = await Promise.all(Array.from({ length: 10 }, () => api.get("/v1/leads")));
    for (const answer of after) expect(answer).toEqual(refusal(401, "invalid_api_key"));
    for (const { status } of await Promise.all(before)) expect([200, 401]).toContain(status);
    await evictDurableObject(env.KEY_GATE.getByName(await hashApiKey(apiKey)));
    expect(await api.get("/v1/leads")).toEqual(refusal(401, "invalid_api_key"));
    expect(await openApi(second.apiKey).get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
  });
});

describe("a workspace without access", () => {
  test("gets 403 for each of its keys, also a new one, as soon as access is revoked, and 200 when it is restored", async () => {
    const { workspaceId, api } = await openWorkspace();
    const second = await exports.Platform.createApiKey({ workspaceId });
    const apis = [api, openApi(second.apiKey)];
    for (const one of apis) expect((await one.get("/v1/leads")).status).toBe(200);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    apis.push(openApi((await exports.Platform.createApiKey({ workspaceId })).apiKey));
    for (const one of apis)
      expect(await one.get("/v1/leads")).toEqual(refusal(403, "workspace_access_denied"));
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: true });
    for (const one of apis) expect(await one.get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
  });

  test("gets 403, counted against the key's quota, even when nothing is left of it", async () => {
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 3 });
    await api.get("/v1/leads");
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    for (const remaining of [1, 0, 0, 0]) {
      const answer = await api.get("/v1/leads");
      expect(answer).toEqual(refusal(403, "workspace_access_denied"));
      expect(rateLimitOf(answer)).toMatchObject({ limit: 3, remaining });
    }
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: true });
    expect((await api.get("/v1/leads")).status).toBe(429);
  });
});
