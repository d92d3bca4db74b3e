import { beforeAll, describe, expect, test } from "vitest";
import {
  anError,
  failTooOften,
  openApi,
  openReceiver,
  openWorkspace,
  type Page,
  platform,
  SUCCESS,
  send,
  sendUnauthenticated,
  subscribe,
} from "./support.ts";

const REFUSED = { status: 401, body: anError("invalid_api_key") };

/** A key that was revoked. */
async function revokedKey(): Promise<string> {
  const { keyId, apiKey } = await openWorkspace();
  await platform("revokeApiKey", { keyId });
  return apiKey;
}

let apiKey: string;
beforeAll(async () => {
  ({ apiKey } = await openWorkspace());
});

describe("Authentication", () => {
  test.each(["Bearer", "bearer", "BEARER", "bEaReR"])(
    "The scheme is HTTP Bearer, in any case: `%s`",
    async (scheme) => {
      const headers = { Authorization: `${scheme} ${apiKey}` };
      expect((await send("GET", "/v1/leads", { headers })).status).toBe(200);
    },
  );

  test.each(["Basic", "Token", ""])("No other scheme is accepted: `%s`", async (scheme) => {
    expect(await sendUnauthenticated(`${scheme} ${apiKey}`.trim())).toMatchObject(REFUSED);
  });

  test("A key has the shape `key_live_<32 characters>`", () => {
    expect(apiKey).toMatch(/^key_live_.{32}$/);
  });

  test("There is no test key", async () => {
    const testKey = apiKey.replace("key_live_", "key_test_");
    expect(await sendUnauthenticated(`Bearer ${testKey}`)).toMatchObject(REFUSED);
  });

  test("Each key gives access to the whole workspace", async () => {
    const { api, createKey, recordAutomation, recordLead, recordRun } = await openWorkspace();
    await recordRun(await recordAutomation());
    await recordLead();
    await subscribe(api, openReceiver().url);
    const second = openApi((await createKey()).apiKey);
    for (const list of ["/automations", "/leads", "/runs", "/webhooks"]) {
      expect((await second.get<Page>(list)).body.data).toHaveLength(1);
      expect((await second.get(list)).body).toEqual((await api.get(list)).body);
    }
  });

  test("A key can do what another key of the workspace began", async () => {
    const { api, createKey, recordAutomation } = await openWorkspace();
    const { id } = await subscribe(api, openReceiver().url);
    const automation = `/automations/${await recordAutomation()}`;
    const second = openApi((await createKey()).apiKey);
    expect((await second.patch(automation, { status: "paused" })).status).toEqual(SUCCESS);
    expect((await second.delete(`/webhooks/${id}`)).status).toEqual(SUCCESS);
  });

  test.each<[string, () => Promise<string | null>]>([
    ["missing", async () => null],
    ["malformed", async () => "Bearer nonsense"],
    ["invalid", async () => `Bearer key_live_${"a".repeat(32)}`],
    ["revoked", async () => `Bearer ${await revokedKey()}`],
  ])("A %s key gives 401 `invalid_api_key`", async (_, authorization) => {
    expect(await sendUnauthenticated(await authorization())).toMatchObject(REFUSED);
  });

  test("A missing, malformed, invalid and revoked key are indistinguishable", async () => {
    const keys = ["nonsense", `key_live_${"a".repeat(32)}`, await revokedKey()];
    const answers = [await sendUnauthenticated(null)];
    for (const key of keys) answers.push(await sendUnauthenticated(`Bearer ${key}`));
    const [missing, ...others] = answers.map(({ status, headers, body }) => {
      const names = [...headers.keys()].filter((name) => name !== "date");
      const limits = headers.get("X-RateLimit-Limit");
      return { status, names, limits, body };
    });
    for (const other of others) expect(other).toEqual(missing);
  });

  test("A revoked key is rejected immediately", async () => {
    const { keyId, apiKey, api } = await openWorkspace();
    expect((await api.get("/leads")).status).toBe(200);
    await platform("revokeApiKey", { keyId });
    expect(await sendUnauthenticated(`Bearer ${apiKey}`)).toMatchObject(REFUSED);
  });

  test("The other keys of the workspace stay valid when one is revoked", async () => {
    const { keyId, createKey } = await openWorkspace();
    const second = openApi((await createKey()).apiKey);
    await platform("revokeApiKey", { keyId });
    expect((await second.get("/leads")).status).toBe(200);
  });

  test("A workspace that no longer has access gives 403 `workspace_access_denied`", async () => {
    const { workspaceId, api } = await openWorkspace();
    expect((await api.get("/leads")).status).toBe(200);
    await platform("setWorkspaceAccess", { workspaceId, granted: false });
    const denied = { status: 403, body: anError("workspace_access_denied") };
    expect(await api.get("/leads")).toMatchObject(denied);
  });

  test("A workspace that has never had access gives 403 `workspace_access_denied`", async () => {
    const { workspaceId, createKey } = await openWorkspace();
    // At once: nothing has been asked of the service for it.
    await platform("setWorkspaceAccess", { workspaceId, granted: false });
    const api = openApi((await createKey()).apiKey);
    expect(await api.get("/leads")).toMatchObject({
      status: 403,
      body: anError("workspace_access_denied"),
    });
  });

  test("A revoked key of a workspace without access gives 401, not 403", async () => {
    const { workspaceId, keyId, apiKey } = await openWorkspace();
    await platform("setWorkspaceAccess", { workspaceId, granted: false });
    await platform("revokeApiKey", { keyId });
    expect(await sendUnauthenticated(`Bearer ${apiKey}`)).toMatchObject(REFUSED);
  });

  test("A workspace that has access again is served", async () => {
    const { workspaceId, api } = await openWorkspace();
    const statuses: number[] = [];
    for (const granted of [false, true]) {
      await platform("setWorkspaceAccess", { workspaceId, granted });
      statuses.push((await api.get("/leads")).status);
    }
    expect(statuses).toEqual([403, 200]);
  });

  test("A webhook delivery carries no Bearer key", async () => {
    const { api, apiKey, recordLead } = await openWorkspace();
    const receiver = openReceiver();
    await subscribe(api, receiver.url);
    await recordLead();
    const [received] = await receiver.waitFor(1);
    expect(received?.headers).not.toHaveProperty("authorization");
    expect(JSON.stringify(received?.headers)).not.toContain(apiKey);
  });

  test("A valid key is served from an address that gets 429 for failing too often", async () => {
    const { api } = await openWorkspace();
    expect((await failTooOften()).status).toBe(429);
    expect((await api.get("/leads")).status).toBe(200);
  });
});
