import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { isoTime } from "../../../src/contract/time.ts";
import { commit, connect } from "../../../src/db/client.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import { insertApiKey, rotateKey } from "../../../src/workspaces/key-rows.ts";
import {
  errorOf,
  openApi,
  openWorkspace,
  Platform,
  pagesOf,
  platformOf,
  rateLimitOf,
  SOME_TIME,
} from "../../support/api.ts";
import { HOUR_MS, jumpTo, subscriberUrl } from "../../support/deliveries.ts";
import { interposedObjects } from "../../support/interposed.ts";
import { insertApiKeys } from "../../support/rows.ts";

/** What listApiKeys shows of a key. */
async function shown(workspaceId: string, keyId: string) {
  const { items } = await Platform.listApiKeys({ workspaceId });
  return items.find((item) => item.keyId === keyId);
}

const statusOf = async (api: ReturnType<typeof openApi>) => (await api.get("/v1/leads")).status;
const quotaOf = async (apiKey: string) => rateLimitOf(await openApi(apiKey).get("/v1/leads")).limit;

test("createApiKey shows the key once, and stores its SHA-256 and last characters", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const { keyId, apiKey } = await Platform.createApiKey({
    ...{ workspaceId, name: "CRM", requestsPerWindow: 7 },
  });
  expect(keyId).toMatch(/^key_[0-9a-z]+$/);
  expect(apiKey).toMatch(/^key_live_[0-9A-Za-z]{32}$/);
  const rows = env.DB.prepare("SELECT * FROM api_keys WHERE workspace_id = ?").bind(workspaceId);
  expect((await rows.all()).results).toEqual([
    {
      expires_at: null,
      id: keyId,
      workspace_id: workspaceId,
      key_hash: await hashApiKey(apiKey),
      name: "CRM",
      last_four: apiKey.slice(-4),
      requests_per_window: 7,
      created_at: expect.any(Number),
      revoked_at: null,
      last_used_at: null,
    },
  ]);
  const answer = await openApi(apiKey).get("/v1/leads");
  expect(rateLimitOf(answer)).toMatchObject({ limit: 7, remaining: 6 });
});

test.each(["keyId", "apiKey"] as const)(
  "revokeApiKey accepts the %s, and keeps the time of the first call",
  async (name) => {
    const { api, ...workspace } = await openWorkspace();
    const { keyId, workspaceId } = workspace;
    expect(await statusOf(api)).toBe(200);
    const revoke = async () => {
      const input = { [name]: workspace[name] } as { keyId: string };
      expect(await Platform.revokeApiKey(input)).toEqual({ keyId, workspaceId, webhookIds: [] });
      return shown(workspaceId, keyId);
    };
    const first = await revoke();
    expect(first).toMatchObject({ revokedAt: SOME_TIME });
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await revoke()).toEqual(first);
    expect(await statusOf(api)).toBe(401);
  },
);

test("a request with a revoked key does not count as a use of it", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const { keyId, apiKey } = await Platform.createApiKey({ workspaceId });
  await Platform.revokeApiKey({ keyId });
  expect(await statusOf(openApi(apiKey))).toBe(401);
  expect(await shown(workspaceId, keyId)).toMatchObject({ lastUsedAt: null });
});

test("a subscription remembers the key that created it, so that what a thief left can be found", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const stolen = await Platform.createApiKey({ workspaceId, name: "CRM" });
  const other = await Platform.createApiKey({ workspaceId });
  const create = async ({ apiKey }: typeof other) => {
    const subscription = { url: subscriberUrl(), events: ["lead.created"] };
    const { body } = await openApi(apiKey).post<{ id: string }>("/v1/webhooks", subscription);
    return body.id;
  };
  const [theirs, ours] = [await create(stolen), await create(other)];
  const { keyId } = stolen;
  expect(await Platform.revokeApiKey({ keyId })).toEqual({
    ...{ keyId, workspaceId },
    webhookIds: [theirs],
  });
  const { items } = await Platform.listWebhooks({ workspaceId });
  const shownOf = Object.fromEntries(items.map(({ webhookId, keyId }) => [webhookId, keyId]));
  expect(shownOf).toEqual({ [theirs]: keyId, [ours]: other.keyId });
  const keyLabel = `CRM …${stolen.apiKey.slice(-4)}`;
  expect(await Platform.readWebhook({ webhookId: theirs })).toMatchObject({ keyId, keyLabel });
  const unnamed = { keyLabel: `…${other.apiKey.slice(-4)}` };
  expect(await Platform.readWebhook({ webhookId: ours })).toMatchObject(unnamed);
  const trail = await Platform.listAuditTrail({ workspaceId });
  const revoked = trail.items.find(({ method }) => method === "revokeApiKey");
  expect(revoked).toMatchObject({ ids: [keyId], keys: { [keyId]: keyLabel } });
  await Platform.deleteWebhook({ webhookId: theirs });
  expect(await Platform.revokeApiKey({ keyId })).toMatchObject({ webhookIds: [] });
});

describe("listApiKeys", () => {
  test("shows the keys of a workspace, and when each was last used", async () => {
    // The clock stands still, so that no hour begins.
    jumpTo(Date.now());
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 7 });
    const unused = await Platform.createApiKey({ workspaceId });
    const startedAt = new Date().toISOString();
    await api.get("/v1/leads");
    const entry = {
      name: null,
      lastFour: expect.stringMatching(/^[0-9A-Za-z]{4}$/),
      createdAt: SOME_TIME,
      lastUsedAt: null,
      requestsPerWindow: 600,
      windowSeconds: 60,
      hours: Array(24).fill({ hour: expect.any(String), requests: 0, refused: 0, busiest: 0 }),
      revokedAt: null,
      expiresAt: null,
    };
    expect(await shown(workspaceId, unused.keyId)).toEqual({ ...entry, keyId: unused.keyId });
    const used = await shown(workspaceId, keyId);
    expect(used).toMatchObject({ keyId, requestsPerWindow: 7, lastUsedAt: SOME_TIME });
    expect(used?.hours.at(-1)).toMatchObject({ requests: 1, busiest: 1 });
    expect(String(used?.lastUsedAt) >= startedAt).toBe(true);
  });

  test("shows the requests with a key by hour, of the current hour and the 23 before it", async () => {
    const { workspaceId, keyId, api } = await openWorkspace();
    const first = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
    for (const hours of [0, 1, 3]) {
      jumpTo(first + hours * HOUR_MS);
      for (let i = 0; i <= hours; i++) await api.get("/v1/leads");
    }
    jumpTo(first + 24 * HOUR_MS + 5);
    const { hours = [] } = (await shown(workspaceId, keyId)) ?? {};
    expect(hours.map(({ requests }) => requests)).toEqual([2, 0, 4, ...Array(21).fill(0)]);
    expect(hours[0]?.hour).toBe(isoTime(first + HOUR_MS).replace(".000", ""));
  });

  test("asks no gate about a key that was never used", async () => {
    const { workspaceId, api } = await openWorkspace();
    await Platform.createApiKey({ workspaceId });
    await api.get("/v1/leads");
    let calls = 0;
    const KEY_GATE = interposedObjects(env.KEY_GATE, (go) => {
      calls++;
      return go();
    });
    expect(
      (await platformOf({ ...env, KEY_GATE }).listApiKeys({ workspaceId })).items,
    ).toHaveLength(2);
    expect(calls).toBe(1);
  });

  test("shows how many requests got a 429, also from an isolate that has not asked the gate", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 1 });
    const startsAt = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
    // The isolate repeats a 429 for two seconds.
    for (const [ms, status] of [
      [0, 200],
      ...[1, 2, 3, 2_100, 4_200, 4_201].map((ms) => [ms, 429]),
      // The isolate reports its last repeated 429 to the gate an hour later.
      [HOUR_MS, 200],
    ] as const) {
      jumpTo(startsAt + Number(ms));
      expect(await statusOf(api)).toBe(status);
    }
    const { hours } = (await shown(workspaceId, keyId)) ?? {};
    expect(hours?.slice(-2)).toMatchObject([
      { requests: 1, refused: 6, busiest: 1 },
      { requests: 1, refused: 0, busiest: 1 },
    ]);
  });

  test("returns pages of 20 without gaps or repetitions, with cursors for one list only", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    await openWorkspace();
    const ids = Array.from({ length: 44 }, (_, i) => `key_${String(i).padStart(4, "0")}`);
    await insertApiKeys(ids.map((id, i) => ({ id, workspaceId, createdAt: 1_000 + (i >> 2) })));
    const pages = await pagesOf((cursor) => Platform.listApiKeys({ workspaceId, cursor }));
    expect(pages.map(({ length }) => length)).toEqual([20, 20, 5]);
    expect(pages.flat().map((item) => item.keyId)).toEqual([keyId, ...ids.toReversed()]);
    const { nextCursor } = await Platform.listApiKeys({ workspaceId });
    const foreign = Platform.listWorkspaces({ cursor: nextCursor });
    expect(await errorOf(foreign)).toBe("listWorkspaces: cursor: is not a cursor of this list");
  });
});

test("updateApiKey changes the rate limit of a live key immediately", async () => {
  const { keyId, api } = await openWorkspace({ requestsPerWindow: 2 });
  for (const status of [200, 200, 429]) expect(await statusOf(api)).toBe(status);
  expect(await Platform.updateApiKey({ keyId, requestsPerWindow: 10 })).toEqual({});
  const answer = await api.get("/v1/leads");
  expect(answer.status).toBe(200);
  expect(rateLimitOf(answer)).toMatchObject({ limit: 10, remaining: 7 });
  await Platform.updateApiKey({ keyId, requestsPerWindow: null });
  expect(rateLimitOf(await api.get("/v1/leads"))).toMatchObject({ limit: 600, remaining: 596 });
  await Platform.updateApiKey({ keyId, requestsPerWindow: 1 });
  expect(rateLimitOf(await api.get("/v1/leads"))).toMatchObject({ limit: 1, remaining: 0 });
  await Platform.revokeApiKey({ keyId });
  const revoked = Platform.updateApiKey({ keyId, requestsPerWindow: 1 });
  expect(await errorOf(revoked)).toContain("or it is revoked");
  expect(await statusOf(api)).toBe(401);
});

describe("rollApiKey", () => {
  test("returns a new key like the old one, which expires then and can be revoked before", async () => {
    const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
    const about = { name: "CRM", requestsPerWindow: 7 };
    const { keyId, apiKey } = await Platform.createApiKey({ workspaceId, ...about });
    const api = openApi(apiKey);
    const rolledFrom = Date.now();
    const rolled = await Platform.rollApiKey({ keyId, overlapSeconds: 604_800 });
    const rolledTo = Date.now();
    expect(rolled).toEqual({
      keyId: expect.stringMatching(/^key_/),
      apiKey: expect.stringMatching(/^key_live_[0-9A-Za-z]{32}$/),
    });
    expect(rolled.apiKey).not.toBe(apiKey);
    const same = { ...about, revokedAt: null };
    const own = { lastFour: rolled.apiKey.slice(-4), expiresAt: null };
    expect(await shown(workspaceId, rolled.keyId)).toMatchObject({ ...same, ...own });
    const old = await shown(workspaceId, keyId);
    expect(old).toMatchObject({ ...same, expiresAt: SOME_TIME });
    const end = Date.parse(old?.expiresAt ?? "") - 604_800_000;
    expect([end >= rolledFrom, end <= rolledTo]).toEqual([true, true]);
    expect(await quotaOf(rolled.apiKey)).toBe(7);
    expect(await statusOf(api)).toBe(200);
    const expiry = env.DB.prepare("UPDATE api_keys SET expires_at = ? WHERE id = ?");
    await expiry.bind(Date.now(), keyId).run();
    const update = Platform.updateApiKey({ keyId, requestsPerWindow: 1 });
    expect(await errorOf(update)).toContain("keyId: no such key");
    await Platform.revokeApiKey({ keyId });
    expect(await statusOf(api)).toBe(401);
    expect(await errorOf(Platform.rollApiKey({ keyId, overlapSeconds: 1 }))).toBe(
      "rollApiKey: keyId: this key is revoked",
    );
  });

  test("after a lost reply, the unseen key can be found and rotated in turn, without a grace period", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 7 });
    const unseen = await Platform.rollApiKey({ keyId, overlapSeconds: 3600 });
    expect(await errorOf(Platform.rollApiKey({ keyId, overlapSeconds: 3600 }))).toBe(
      "rollApiKey: keyId: this key was rolled before; listApiKeys shows when it expires, and the new key",
    );
    const { items } = await Platform.listApiKeys({ workspaceId });
    const [found] = items.filter((item) => item.expiresAt === null && item.lastUsedAt === null);
    expect(found?.keyId).toBe(unseen.keyId);
    const seen = await Platform.rollApiKey({ keyId: unseen.keyId, overlapSeconds: 0 });
    const live = { revokedAt: null, expiresAt: null };
    expect(await shown(workspaceId, unseen.keyId)).toMatchObject({ ...live, revokedAt: SOME_TIME });
    expect(await shown(workspaceId, seen.keyId)).toMatchObject(live);
    expect(await statusOf(openApi(unseen.apiKey))).toBe(401);
    expect(await quotaOf(seen.apiKey)).toBe(7);
    expect(await statusOf(api)).toBe(200);
  });

  test.each([
    ["that was to be revoked", "revoked_at = 1", 0],
    ["that was to expire", "expires_at = 1", 60],
  ])(
    "ends a key %s, even if an earlier call failed before the key's gate was told",
    async (_, ends, overlapSeconds) => {
      const { keyId, api } = await openWorkspace();
      expect(await statusOf(api)).toBe(200);
      await env.DB.prepare(`UPDATE api_keys SET ${ends} WHERE id = ?`).bind(keyId).run();
      expect(await statusOf(api)).toBe(200);
      expect(await errorOf(Platform.rollApiKey({ keyId, overlapSeconds }))).toContain("this key");
      expect(await statusOf(api)).toBe(401);
    },
  );

  test("returns the stored key even if the database's reply was lost", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    const now = Date.now();
    const rolled = rotateKey(
      keyId,
      { id: "key_new", keyHash: "new", lastFour: "wxyz" },
      now + 1_000,
      now,
    );
    const directory = connect(env.DB);
    const first = await commit(directory, rolled);
    expect(await commit(directory, rolled)).toEqual(first);
    expect((await Platform.listApiKeys({ workspaceId })).items).toHaveLength(2);
  });
});

describe("A workspace with up to 500 live keys", () => {
  const FULL = "it has 500 live API keys, the maximum: revoke one first";

  /** Such a workspace; it also has keys that are revoked or expired. The first of its keys is that of `api`. */
  async function openFull() {
    const workspace = await openWorkspace();
    const { workspaceId } = workspace;
    const insertKeys = (first: number, count: number, end: object) =>
      insertApiKeys(
        Array.from({ length: count }, (_, i) => ({
          id: `key_${first + i}${workspaceId}`,
          workspaceId,
          ...end,
        })),
      );
    await insertKeys(0, 50, {});
    await insertKeys(50, 449, { expiresAt: Date.now() + 60_000 });
    await insertKeys(500, 20, { revokedAt: 1 });
    await insertKeys(520, 20, { expiresAt: 1 });
    return { ...workspace, create: () => Platform.createApiKey({ workspaceId }) };
  }

  test("gets no other before one of them is revoked, even if several are created at once", async () => {
    const { keyId, create } = await openFull();
    expect(await errorOf(create())).toBe(`createApiKey: workspaceId: ${FULL}`);
    await Platform.revokeApiKey({ keyId });
    const ended = await Promise.allSettled([create(), create(), create()]);
    expect(ended.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  test("can replace one without an overlap only, and otherwise keeps it as it is", async () => {
    const { workspaceId, keyId, api } = await openFull();
    const roll = (overlapSeconds: number) => Platform.rollApiKey({ keyId, overlapSeconds });
    expect(await errorOf(roll(60))).toBe(`rollApiKey: keyId: ${FULL}`);
    expect(await shown(workspaceId, keyId)).toMatchObject({ revokedAt: null, expiresAt: null });
    expect(await statusOf(api)).toBe(200);
    const { apiKey } = await roll(0);
    expect([await statusOf(api), await statusOf(openApi(apiKey))]).toEqual([401, 200]);
  });

  test.each([
    ["its last key", openFull],
    ["another key", openWorkspace],
  ])("gets %s even if the database's reply was lost", async (_, open) => {
    const { workspaceId, keyId } = await open();
    await Platform.revokeApiKey({ keyId });
    const about = { requestsPerWindow: null, createdAt: Date.now(), name: null, lastFour: "wxyz" };
    const key = { ...about, id: `key_${workspaceId}`, keyHash: workspaceId, workspaceId };
    const directory = connect(env.DB);
    for (let twice = 0; twice < 2; twice++) await commit(directory, insertApiKey(key));
    expect(await shown(workspaceId, key.id)).toMatchObject({ lastFour: "wxyz" });
  });
});
