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
    status: async () => (await key.api.get("/v1/leads")).status,
    setAccess: (granted: boolean) =>
      Platform.setWorkspaceAccess({ workspaceId: key.workspaceId, granted }),
    lastUsedAt: () => lastUse.bind(key.keyHash).first("last_used_at"),
  };
}

afterEach(() => void vi.restoreAllMocks());

test("a key that was never used gets no gate from what the platform does with it", async () => {
  const { workspaceId, keyId, keyHash, setAccess, lastUsedAt, status } = await openUnused();
  for (const granted of [false, true]) await setAccess(granted);
  await Platform.listApiKeys({ workspaceId });
  const { body } = await (await openPortal(workspaceId)).get("/keys");
  expect(body).toMatchObject({ items: [{ keyId }] });
  await Platform.revokeApiKey({ keyId });
  const gates = await listDurableObjectIds(env.KEY_GATE);
  expect(gates.some((id) => id.equals(env.KEY_GATE.idFromName(keyHash)))).toBe(false);
  expect(await status()).toBe(401);
  expect(await lastUsedAt()).toBeNull();
});

test("a key has no gate to tell of deliveries until it is used", async () => {
  const { workspaceId, keyHash, admit } = await openUnused();
  const { id } = await subscribe(workspaceId);
  const told = () => commit(openDatabase(env.DB), findKeysOfSubscriptions([id], Date.now()));
  expect(await told()).toEqual([]);
  await admit();
  expect(await told()).toEqual([{ keyHash }]);
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
    const { setAccess, status, lastUsedAt } = await openUnused();
    await setAccess(false);
    expect(await status()).toBe(403);
    expect(await lastUsedAt()).not.toBeNull();
    await setAccess(true);
    expect(await status()).toBe(200);
  });
});

test.each([
  ["a revocation", "unknown_key"],
  ["a loss of access", "access_denied"],
])("%s after the look-up of a key's first use tells its gate", async (what, verdict) => {
  const key = await openUnused();
  const forget = vi.spyOn(KeyGate.prototype, "forget");
  // The look-up has found a valid key, and its answer is on its way.
  const verdicts = await race(key, async (gate) => {
    await (what === "a revocation"
      ? Platform.revokeApiKey({ keyId: key.keyId })
      : key.setAccess(false));
    expect(forget).toHaveBeenCalledTimes(1);
    // The call told the real gate; this test's gate is told here.
    gate.forget();
  });
  expect(verdicts).toEqual([verdict, verdict]);
});
