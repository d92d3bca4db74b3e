import { listDurableObjectIds } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { commit, openDatabase } from "../../../src/db/client.ts";
import { KeyGate } from "../../../src/quota/key-gate.ts";
import { findKeysOfSubscriptions } from "../../../src/workspaces/workspaces.ts";
import { subscribe } from "../../support/deliveries.ts";
import { openKey, race } from "../../support/gates.ts";
import { openPortal } from "../../support/portal.ts";

const { Platform } = exports;
const NOW = 1_790_000_000_000;
const HOUR_MS = 3_600_000;

async function openUnused() {
  const key = await openKey();
  const lastUse = env.DB.prepare("SELECT last_used_at FROM api_keys WHERE key_hash = ?");
  return {
    ...key,
    lastUsedAt: () => lastUse.bind(key.keyHash).first("last_used_at"),
    exists: async () => {
      const ids = await listDurableObjectIds(env.KEY_GATE);
      return ids.some((id) => id.equals(env.KEY_GATE.idFromName(key.keyHash)));
    },
  };
}

afterEach(() => void vi.restoreAllMocks());

describe("a key that was never used", () => {
  test("gets no gate from what the platform does with it", async () => {
    const { workspaceId, keyId, exists, lastUsedAt, api } = await openUnused();
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    await Platform.listApiKeys({ workspaceId });
    const { status, body } = await (await openPortal(workspaceId)).get("/keys");
    expect([status, body]).toMatchObject([200, { items: [{ keyId }] }]);
    await Platform.revokeApiKey({ keyId });
    expect(await exists()).toBe(false);
    expect((await api.get("/v1/leads")).status).toBe(401);
    expect(await lastUsedAt()).toBeNull();
  });

  test("has no gate to tell of deliveries until it is used", async () => {
    const { workspaceId, keyHash, admit } = await openUnused();
    const { id } = await subscribe(workspaceId);
    const told = () => commit(openDatabase(env.DB), findKeysOfSubscriptions([id], Date.now()));
    expect(await told()).toEqual([]);
    await admit();
    expect(await told()).toEqual([{ keyHash }]);
  });
});

describe("the use of a key", () => {
  test("is noted the first time, and again an hour later, even if it was forgotten in between", async () => {
    const { admit, gate, lastUsedAt } = await openUnused();
    await admit(NOW);
    expect(await lastUsedAt()).toBe(NOW);
    await admit(NOW + HOUR_MS / 2);
    await gate().forget();
    await admit(NOW + HOUR_MS);
    expect(await lastUsedAt()).toBe(NOW);
    await admit(NOW + HOUR_MS + 1);
    expect(await lastUsedAt()).toBe(NOW + HOUR_MS + 1);
  });

  test("that a clock ahead has noted does not keep the standing for longer than an hour", async () => {
    const { keyId, admit } = await openUnused();
    const set = (column: string, time: number) =>
      env.DB.prepare(`UPDATE api_keys SET ${column} = ? WHERE id = ?`).bind(time, keyId).run();
    await set("last_used_at", NOW + 24 * HOUR_MS);
    expect(await admit(NOW)).toMatchObject({ verdict: "admitted" });
    await set("revoked_at", NOW);
    expect(await admit(NOW + HOUR_MS + 1)).toEqual({ verdict: "unknown_key" });
  });

  test("is noted even without access for the workspace: its gate keeps what it has read", async () => {
    const { workspaceId, api, lastUsedAt } = await openUnused();
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect((await api.get("/v1/leads")).status).toBe(403);
    expect(await lastUsedAt()).not.toBeNull();
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    expect((await api.get("/v1/leads")).status).toBe(200);
  });
});

describe("a first use that races", () => {
  test("a revocation after its look-up makes the revocation tell the gate", async () => {
    const key = await openUnused();
    const forget = vi.spyOn(KeyGate.prototype, "forget");
    // The look-up has found a valid key, and its answer is on its way.
    const verdicts = await race(key, async (gate) => {
      await Platform.revokeApiKey({ keyId: key.keyId });
      expect(forget).toHaveBeenCalledTimes(1);
      // The revocation told the real gate; this test's gate is told here.
      gate.forget();
    });
    expect(verdicts).toEqual(["unknown_key", "unknown_key"]);
  });

  test.each(["a revocation", "a loss of access"])(
    "%s is refused as soon as that call has returned, whichever came first",
    async (what) => {
      const revoking = what === "a revocation";
      const rounds = Array.from({ length: 30 }, async (_, i) => {
        const { workspaceId, keyId, api } = await openUnused();
        const uses = Array.from({ length: 3 }, () => api.get("/v1/leads"));
        await new Promise((resolve) => setTimeout(resolve, i % 6));
        if (revoking) await Platform.revokeApiKey({ keyId });
        else await Platform.setWorkspaceAccess({ workspaceId, granted: false });
        expect((await api.get("/v1/leads")).status).toBe(revoking ? 401 : 403);
        return (await Promise.all(uses)).map(({ status }) => status);
      });
      const statuses = new Set((await Promise.all(rounds)).flat());
      for (const status of statuses) expect([200, revoking ? 401 : 403]).toContain(status);
    },
  );
});
