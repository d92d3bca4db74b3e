import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { commit, openDatabase } from "../../../src/db/client.ts";
import { rollKey } from "../../../src/workspaces/api-keys.ts";
import { errorOf, openApi, openWorkspace, rateLimitOf } from "../../support/api.ts";
import { DATABASE, WORKSPACE_DB } from "../../support/placement.ts";

const { Platform } = exports;

/** An input that the types do not allow. */
function wrong<Input>(input: unknown): Input {
  return input as Input;
}

const INSTANT = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

describe("revokeApiKey", () => {
  test.each(["keyId", "apiKey"] as const)(
    "accepts the %s, can be called again, and keeps the time of the first call",
    async (name) => {
      const workspace = await openWorkspace();
      const { keyId, api, workspaceId } = workspace;
      expect((await api.get("/v1/leads")).status).toBe(200);
      const revoke = async () => {
        const input = { [name]: workspace[name] } as { keyId: string };
        expect(await Platform.revokeApiKey(input)).toEqual({ keyId, workspaceId });
        return (await Platform.listApiKeys({ workspaceId })).items[0];
      };
      const first = await revoke();
      expect(first).toMatchObject({ keyId, revokedAt: INSTANT });
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(await revoke()).toEqual(first);
      expect((await api.get("/v1/leads")).status).toBe(401);
    },
  );

  test("says what is wrong without quoting the key", async () => {
    const apiKey = `key_live_${"x".repeat(32)}`;
    expect(await errorOf(Platform.revokeApiKey({ apiKey }))).toBe(
      "revokeApiKey: apiKey: no such key",
    );
    for (const input of [{}, { keyId: null }, { keyId: "key_1", apiKey }])
      expect(await errorOf(Platform.revokeApiKey(wrong(input)))).toBe(
        "revokeApiKey: expected either keyId or apiKey",
      );
    expect(await errorOf(Platform.revokeApiKey(wrong({ apiKey: 7 })))).toContain("apiKey: ");
    const unknown = Platform.revokeApiKey({ keyId: "key_unknown" });
    expect(await errorOf(unknown)).toContain("keyId: no such key");
  });
});

describe("listApiKeys", () => {
  test("shows the keys of a workspace, newest first, and when each was last used", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 7 });
    const unused = await Platform.createApiKey({ workspaceId });
    const startedAt = new Date().toISOString();
    await api.get("/v1/leads");
    const { items, nextCursor } = await Platform.listApiKeys({ workspaceId });
    const entry = {
      createdAt: INSTANT,
      lastUsedAt: null,
      requestsPerWindow: null,
      revokedAt: null,
      expiresAt: null,
    };
    const used = { ...entry, keyId, requestsPerWindow: 7, lastUsedAt: INSTANT };
    const expected = [{ ...entry, keyId: unused.keyId }, used];
    expect(items).toHaveLength(2);
    for (const key of expected) expect(items).toContainEqual(key);
    const { lastUsedAt } = items.find((item) => item.keyId === keyId) ?? {};
    expect(String(lastUsedAt) >= startedAt).toBe(true);
    expect(nextCursor).toBeNull();
    expect(JSON.stringify(items)).not.toContain("key_live_");
  });

  test("returns pages of 100 without gaps or repetitions, with cursors for one list only", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    await openWorkspace();
    const insert = env.DB.prepare(
      "INSERT INTO api_keys (id, workspace_id, key_hash, created_at) VALUES (?, ?, ?, ?)",
    );
    const ids = Array.from({ length: 204 }, (_, i) => `key_${String(i).padStart(4, "0")}`);
    await env.DB.batch(
      ids.map((id, i) => insert.bind(id, workspaceId, crypto.randomUUID(), 1_000 + (i >> 2))),
    );
    const pages: string[][] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof Platform.listApiKeys>> = await Platform.listApiKeys({
        workspaceId,
        cursor,
      });
      pages.push(page.items.map((item) => item.keyId));
      cursor = page.nextCursor;
    } while (cursor !== null);
    expect(pages.map(({ length }) => length)).toEqual([100, 100, 5]);
    expect(pages.flat()).toEqual([keyId, ...ids.toReversed()]);

    const { nextCursor } = await Platform.listApiKeys({ workspaceId });
    const foreign = Platform.listWorkspaces({ cursor: nextCursor });
    expect(await errorOf(foreign)).toBe("listWorkspaces: cursor: is not a cursor of this list");
    expect(await errorOf(Platform.listApiKeys({ workspaceId, cursor: "x" }))).toContain("cursor: ");
  });
});

describe("updateApiKey", () => {
  test("changes the quota of a live key immediately, and does not affect its count", async () => {
    const { keyId, api } = await openWorkspace({ requestsPerWindow: 2 });
    await api.get("/v1/leads");
    await api.get("/v1/leads");
    expect((await api.get("/v1/leads")).status).toBe(429);
    expect(await Platform.updateApiKey({ keyId, requestsPerWindow: 10 })).toEqual({});
    const answer = await api.get("/v1/leads");
    expect(answer.status).toBe(200);
    expect(rateLimitOf(answer)).toMatchObject({ limit: 10, remaining: 7 });
    await Platform.updateApiKey({ keyId, requestsPerWindow: null });
    expect(rateLimitOf(await api.get("/v1/leads"))).toMatchObject({ limit: 600, remaining: 596 });
    await Platform.updateApiKey({ keyId, requestsPerWindow: 1 });
    expect((await api.get("/v1/leads")).status).toBe(429);
  });

  test("rejects an unknown or revoked key, and an invalid quota", async () => {
    const { keyId, apiKey } = await openWorkspace();
    for (const requestsPerWindow of [undefined, 0, 1.5, "7"])
      expect(await errorOf(Platform.updateApiKey(wrong({ keyId, requestsPerWindow })))).toMatch(
        /^updateApiKey: requestsPerWindow(: | is missing$)/,
      );
    expect(
      await errorOf(Platform.updateApiKey({ keyId: "key_unknown", requestsPerWindow: 1 })),
    ).toContain("keyId: no such key");
    await Platform.revokeApiKey({ keyId });
    expect(await errorOf(Platform.updateApiKey({ keyId, requestsPerWindow: 1 }))).toContain(
      "or it is revoked",
    );
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(401);
  });
});

describe("rollApiKey", () => {
  test("returns a new key with the same workspace and quota, and sets the old one's expiry, before which it can be revoked", async () => {
    const { workspaceId, keyId, apiKey } = await openWorkspace({ requestsPerWindow: 7 });
    const rolledFrom = Date.now();
    const rolled = await Platform.rollApiKey({ keyId, overlapSeconds: 604_800 });
    const rolledTo = Date.now();
    expect(rolled).toEqual({
      keyId: expect.stringMatching(/^key_/),
      apiKey: expect.stringMatching(/^key_live_[0-9A-Za-z]{32}$/),
    });
    expect(rolled.apiKey).not.toBe(apiKey);
    const { items } = await Platform.listApiKeys({ workspaceId });
    const [fresh, old] = [rolled.keyId, keyId].map((id) => items.find((i) => i.keyId === id));
    const same = { requestsPerWindow: 7, revokedAt: null };
    expect(fresh).toMatchObject({ ...same, expiresAt: null });
    expect(old).toMatchObject({ ...same, expiresAt: INSTANT });
    const end = Date.parse(old?.expiresAt ?? "") - 604_800_000;
    expect(end).toBeGreaterThanOrEqual(rolledFrom);
    expect(end).toBeLessThanOrEqual(rolledTo);
    expect(rateLimitOf(await openApi(rolled.apiKey).get("/v1/leads")).limit).toBe(7);
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(200);
    await Platform.revokeApiKey({ keyId });
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(401);
  });

  test("without an overlap shows the old key as revoked", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    const rolled = await Platform.rollApiKey({ keyId, overlapSeconds: 0 });
    const { items } = await Platform.listApiKeys({ workspaceId });
    const shown = items.map(({ keyId, revokedAt, expiresAt }) => ({ keyId, revokedAt, expiresAt }));
    expect(shown).toContainEqual({ keyId, revokedAt: INSTANT, expiresAt: null });
    expect(shown).toContainEqual({ keyId: rolled.keyId, revokedAt: null, expiresAt: null });
  });

  test("creates one key if called twenty times at once", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    const calls = Array.from({ length: 20 }, () =>
      Platform.rollApiKey({ keyId, overlapSeconds: 60 }),
    );
    const ended = await Promise.allSettled(calls);
    expect(ended.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect((await Platform.listApiKeys({ workspaceId })).items).toHaveLength(2);
  });

  test("after a lost reply, the unseen key can be found and rolled in turn", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 7 });
    const unseen = await Platform.rollApiKey({ keyId, overlapSeconds: 3600 });
    expect(await errorOf(Platform.rollApiKey({ keyId, overlapSeconds: 3600 }))).toBe(
      "rollApiKey: keyId: this key was rolled before; listApiKeys shows when it expires, and the new key",
    );
    const { items } = await Platform.listApiKeys({ workspaceId });
    const [found] = items.filter((item) => item.expiresAt === null && item.lastUsedAt === null);
    expect(found?.keyId).toBe(unseen.keyId);
    const seen = await Platform.rollApiKey({ keyId: unseen.keyId, overlapSeconds: 0 });
    expect((await openApi(unseen.apiKey).get("/v1/leads")).status).toBe(401);
    expect(rateLimitOf(await openApi(seen.apiKey).get("/v1/leads")).limit).toBe(7);
    expect((await api.get("/v1/leads")).status).toBe(200);
  });

  test("returns the stored key even if the database's reply was lost", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    const now = Date.now();
    const rolled = rollKey(keyId, { id: "key_new", keyHash: "new" }, now + 1_000, now);
    const directory = openDatabase(env.DB);
    const first = await commit(directory, rolled);
    expect(await commit(directory, rolled)).toEqual(first);
    expect((await Platform.listApiKeys({ workspaceId })).items).toHaveLength(2);
  });

  test("rejects an unknown, revoked, expiring or expired key, and names the parameter", async () => {
    const roll = (keyId: string) => errorOf(Platform.rollApiKey({ keyId, overlapSeconds: 1 }));
    expect(await roll("key_unknown")).toBe("rollApiKey: keyId: no such key");
    const { workspaceId, keyId } = await openWorkspace();
    await Platform.rollApiKey({ keyId, overlapSeconds: 60 });
    expect(await roll(keyId)).toContain("keyId: this key was rolled before");
    await env.DB.prepare("UPDATE api_keys SET expires_at = 1 WHERE id = ?").bind(keyId).run();
    expect(await roll(keyId)).toContain("keyId: this key was rolled before");
    const update = Platform.updateApiKey({ keyId, requestsPerWindow: 1 });
    expect(await errorOf(update)).toContain("keyId: no such key");
    await Platform.revokeApiKey({ keyId });
    expect(await roll(keyId)).toBe("rollApiKey: keyId: this key is revoked");
    expect((await Platform.listApiKeys({ workspaceId })).items).toHaveLength(2);
  });

  test("rejects an invalid overlap, or one longer than seven days", async () => {
    const { keyId } = await openWorkspace();
    for (const overlapSeconds of [undefined, null, -1, 1.5, "60", 604_801])
      expect(await errorOf(Platform.rollApiKey(wrong({ keyId, overlapSeconds })))).toMatch(
        /^rollApiKey: overlapSeconds(: | is missing$)/,
      );
  });
});

describe("listWorkspaces", () => {
  test("shows all workspaces in pages, newest first", async () => {
    await env.DB.batch(
      Array.from({ length: 101 }, (_, i) =>
        env.DB.prepare(
          "INSERT INTO workspaces (id, name, admin_emails, created_at) VALUES (?, 'Old', '[]', ?)",
        ).bind(`wks_${String(i).padStart(4, "0")}`, i),
      ),
    );
    const { workspaceId } = await Platform.createWorkspace({
      name: "Agence Lumière",
      database: DATABASE,
    });
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    const first = await Platform.listWorkspaces({});
    expect(first.items).toHaveLength(100);
    expect(first.items[0]).toEqual({
      workspaceId,
      name: "Agence Lumière",
      accessGranted: false,
      webhooksMax: 20,
      createdAt: INSTANT,
      database: DATABASE,
    });
    const second = await Platform.listWorkspaces({ cursor: first.nextCursor });
    const ids = [...first.items, ...second.items].map((item) => item.workspaceId);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.at(-1)).toBe("wks_0000");
    expect(second.nextCursor).toBeNull();
  });
});

describe("updateWorkspace", () => {
  /** The row of a workspace. */
  const read = (workspaceId: string) =>
    WORKSPACE_DB.prepare("SELECT name, admin_emails FROM workspaces WHERE id = ?")
      .bind(workspaceId)
      .first();

  test("changes the given fields and no others", async () => {
    const input = { name: "Agence", adminEmails: ["admin@example.com"] };
    const { workspaceId } = await Platform.createWorkspace(input);
    expect(await Platform.updateWorkspace({ workspaceId, name: "Agence Lumière" })).toEqual({});
    const admins = '["admin@example.com"]';
    expect(await read(workspaceId)).toEqual({ name: "Agence Lumière", admin_emails: admins });
    await Platform.updateWorkspace({ workspaceId, adminEmails: [] });
    expect(await read(workspaceId)).toEqual({ name: "Agence Lumière", admin_emails: "[]" });
    await Platform.updateWorkspace({ workspaceId });
    expect(await read(workspaceId)).toEqual({ name: "Agence Lumière", admin_emails: "[]" });
    await Platform.updateWorkspace({ workspaceId, webhooksMax: 100 });
    await Platform.updateWorkspace({ workspaceId, name: "Agence" });
    expect(await read(workspaceId)).toEqual({ name: "Agence", admin_emails: "[]" });
    const { items } = await Platform.listWorkspaces({});
    expect(items).toContainEqual(expect.objectContaining({ workspaceId, webhooksMax: 100 }));
  });

  test("says what is wrong, and then changes nothing", async () => {
    const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
    for (const webhooksMax of [0, -1, 1.5, "30", 101])
      expect(
        await errorOf(Platform.updateWorkspace(wrong({ workspaceId, webhooksMax }))),
      ).toContain("updateWorkspace: webhooksMax: ");
    const input = { workspaceId, name: "", adminEmails: ["b"] };
    expect(await errorOf(Platform.updateWorkspace(input))).toContain("updateWorkspace: name: ");
    expect(await read(workspaceId)).toEqual({ name: "Agence", admin_emails: "[]" });
  });
});
