import { evictDurableObject, listDurableObjectIds, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { KeyGate } from "../../../src/rate-limit/key-gate.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import type { HourUsage } from "../../../src/rate-limit/window.ts";
import { Platform } from "../../support/api.ts";
import { HOUR_MS, jumpTo, observedDatabase } from "../../support/deliveries.ts";
import { observeWrites, openKey, race } from "../../support/gates.ts";
import { openPortal } from "../../support/portal.ts";

const NOW = 1_790_000_000_000;
/** A quota that no test uses up. */
const LARGE = 10_000;
const WINDOW_MS = env.QUOTA_WINDOW_SECONDS * 1000;
const UNKNOWN = { verdict: "unknown_key" };
const ADMITTED = { verdict: "admitted" };

/** A key of a new workspace, and its gate at `NOW`. */
async function openGate(requestsPerWindow?: number) {
  const key = await openKey(requestsPerWindow);
  const limit = requestsPerWindow ?? env.QUOTA_REQUESTS;
  const known = { keyId: key.keyId, workspaceId: key.workspaceId };
  const rateLimit = (remaining: number, resetMs = WINDOW_MS) => ({ limit, remaining, resetMs });
  return {
    ...key,
    admit: (now = NOW) => key.admit(now),
    admitted: (remaining: number) => ({
      ...{ ...ADMITTED, ...known, rateLimit: rateLimit(remaining) },
      ...{ database: "DB", statusReadAt: expect.any(Number) },
    }),
    exceeded: (resetMs?: number) => ({
      ...{ verdict: "rate_limited", ...known },
      rateLimit: rateLimit(0, resetMs),
    }),
    /** Changes the key without telling the gate, as if `forget` had been lost. */
    revokeUnnoticed: () =>
      env.DB.prepare("UPDATE api_keys SET revoked_at = 1 WHERE id = ?").bind(key.keyId).run(),
  };
}

describe("the quota of a key", () => {
  test("is `requestsPerWindow`, counted down with each request of a window", async () => {
    const { admit, admitted, exceeded } = await openGate(2);
    // A refused request opens no window.
    const second = NOW + WINDOW_MS + 7_500;
    for (const [now, answer] of [
      [NOW, admitted(1)],
      [NOW, admitted(0)],
      [NOW, exceeded()],
      [NOW + WINDOW_MS - 1, exceeded(1)],
      [second, admitted(1)],
      [second, admitted(0)],
      [second + WINDOW_MS - 1, exceeded(1)],
      [second + WINDOW_MS, admitted(1)],
      // A clock that is behind does not extend the window, unless by all of it.
      [second + WINDOW_MS - 1, admitted(0)],
      [second, admitted(1)],
    ] as const)
      expect(await admit(now)).toEqual(answer);
  });

  test("is exact if more requests come at once than it admits", async () => {
    const { admit } = await openGate(50);
    const admissions = await Promise.all(Array.from({ length: 150 }, () => admit()));
    const left = admissions.flatMap((admission) =>
      admission.verdict === "admitted" ? admission.rateLimit.remaining : [],
    );
    expect(left.sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i));
  });

  test("belongs to a single key, even within one workspace", async () => {
    const { workspaceId, admit, admitted } = await openGate();
    expect(await admit()).toEqual(admitted(env.QUOTA_REQUESTS - 1));
    const { apiKey, keyId } = await Platform.createApiKey({ workspaceId });
    const keyHash = await hashApiKey(apiKey);
    const own = await env.KEY_GATE.getByName(keyHash).admit(keyHash);
    expect(own).toEqual({ ...admitted(env.QUOTA_REQUESTS - 1), keyId });
  });
});

describe("the window of a key", () => {
  test("is written at most twice per second, however many requests there are", async () => {
    const { keyHash, gate } = await openKey(LARGE);
    await runInDurableObject(gate(), async (_, state) => {
      const writes = observeWrites(state.storage);
      const gate = new KeyGate(state, env);
      const startedAt = Date.now();
      let requests = 0;
      for (; Date.now() - startedAt < 1_200 || requests <= 100; requests += 10) {
        await Promise.all(Array.from({ length: 10 }, () => gate.admit(keyHash)));
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      // The last write has all of them.
      const last = { window: { count: requests } };
      await expect.poll(() => writes.at(-1)?.value).toMatchObject(last);
      expect(writes.length).toBeGreaterThanOrEqual(2);
      for (const [i, { name, at }] of writes.entries()) {
        expect(name).toBe("counted");
        expect(at - (writes[i - 1]?.at ?? 0)).toBeGreaterThanOrEqual(495);
      }
      const { hours } = (await state.storage.get("counted")) as { hours: HourUsage[] };
      expect(hours.reduce((sum, hour) => sum + hour.requests, 0)).toBe(requests);
    });
  });

  test("is written at once after the clock was set back", async () => {
    const { keyHash, gate } = await openKey(LARGE);
    await runInDurableObject(gate(), async (_, state) => {
      const gate = new KeyGate(state, env);
      await gate.admit(keyHash);
      const writes = observeWrites(state.storage);
      vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - HOUR_MS });
      await gate.admit(keyHash);
      expect(writes).toHaveLength(1);
    });
  });

  test("is complete when the object is evicted, however soon after a request", async () => {
    const { gate, admit } = await openKey(LARGE);
    for (let used = 1; used <= 12; used += 4) {
      await Promise.all([admit(), admit(), admit()]);
      await evictDurableObject(gate());
      expect(await admit()).toMatchObject({ rateLimit: { remaining: LARGE - used - 3 } });
    }
  });
});

describe("the status of a key", () => {
  test("is unknown if nobody created the key", async () => {
    expect(await env.KEY_GATE.getByName("nobody's").admit("nobody's")).toEqual(UNKNOWN);
  });

  test("is not stored if nobody created the key", async () => {
    const stored = (gate: DurableObjectStub<KeyGate>) =>
      runInDurableObject(gate, async (_, { storage }) => (await storage.list()).size);
    const created = await openGate();
    await created.admit();
    expect(await stored(created.gate())).toBeGreaterThan(0);
    const gate = env.KEY_GATE.getByName("nobody's either");
    await gate.admit("nobody's either");
    expect(await stored(gate)).toBe(0);
  });

  test("is read once and kept for an hour, even across an eviction, whatever the gate has been told", async () => {
    const { gate, admit, revokeUnnoticed } = await openGate();
    await admit();
    await revokeUnnoticed();
    expect(await admit()).toMatchObject(ADMITTED);
    await evictDurableObject(gate());
    expect(await admit(NOW + 3_599_999)).toMatchObject(ADMITTED);
    expect(await admit(NOW + 3_600_000)).toEqual(UNKNOWN);
  });

  test.each([false, true])("is dropped by `forget`, also if evicted: %s", async (evicted) => {
    const { gate, admit, revokeUnnoticed } = await openGate();
    await admit();
    await revokeUnnoticed();
    await gate().forget();
    if (evicted) await evictDurableObject(gate());
    expect(await admit()).toEqual(UNKNOWN);
  });

  test("does not affect the count when it is forgotten or its object evicted", async () => {
    const { gate, admit, admitted } = await openGate(3);
    await admit();
    await gate().forget();
    expect(await admit()).toEqual(admitted(1));
    await evictDurableObject(gate());
    const rateLimit = { limit: 3, remaining: 0, resetMs: WINDOW_MS - 20_000 };
    expect(await admit(NOW + 20_000)).toMatchObject({ ...ADMITTED, rateLimit });
  });
});

/** Rolls a key and returns when the old one expires, Unix milliseconds. */
async function roll({ workspaceId, keyId }: { workspaceId: string; keyId: string }, seconds = 60) {
  await Platform.rollApiKey({ keyId, overlapSeconds: seconds });
  const { items } = await Platform.listApiKeys({ workspaceId });
  return Date.parse(items.find((item) => item.keyId === keyId)?.expiresAt ?? "");
}

describe("the gate of a key that was rotated", () => {
  test.each([true, false])("rejects it to the millisecond, if used before: %s", async (used) => {
    const key = await openKey();
    const { workspaceId, keyId, gate, admit } = key;
    if (used) await admit();
    const end = await roll(key);
    if (used) {
      expect(await admit(end - 1)).toMatchObject(ADMITTED);
      // It keeps the expiry with the status.
      await evictDurableObject(gate());
      expect(await admit(end - 1)).toMatchObject(ADMITTED);
    }
    expect(await admit(end)).toEqual(UNKNOWN);
    await evictDurableObject(gate());
    for (const now of [end, end + 10_000_000]) expect(await admit(now)).toEqual(UNKNOWN);
    const { items } = await Platform.listApiKeys({ workspaceId });
    const lastUsedAt = used ? expect.any(String) : null;
    expect(items.find((item) => item.keyId === keyId)).toMatchObject({ lastUsedAt });
  });
});

describe("a status that is being read", () => {
  const access = (granted: number) =>
    `UPDATE workspaces SET access_granted = ${granted} WHERE id IN (?1, ?2)`;
  test.each([
    ["a revocation", "UPDATE api_keys SET revoked_at = 1 WHERE id = ?1 OR 0 = ?2", "unknown_key"],
    ["a loss of access", access(0), "access_denied"],
    ["access that is back", access(1), "admitted"],
  ])("before %s does not return", async (what, change, verdict) => {
    const key = await openGate();
    const { workspaceId, keyId, gate, admit } = key;
    if (what === "access that is back")
      await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    const verdicts = await race(key, async (cold) => {
      await env.DB.prepare(change).bind(keyId, workspaceId).run();
      cold.forget();
    });
    expect(verdicts).toEqual([verdict, verdict]);
    await evictDurableObject(gate());
    expect(await admit()).toMatchObject({ verdict });
  });

  test("gets the expiry of a key that is rotated meanwhile", async () => {
    const [key, expiring] = [await openKey(), await openKey()];
    let end = 0;
    const rolling = async (gate: KeyGate) => {
      end = await roll(key);
      gate.forget();
    };
    const verdicts = await race(key, rolling, () => [end - 1, end]);
    expect(verdicts).toEqual(["admitted", "admitted", "unknown_key"]);
    const expiresAt = await roll(expiring, 1);
    const expired = async () => jumpTo(expiresAt);
    expect(await race(expiring, expired)).toEqual(["unknown_key", "unknown_key"]);
  });

  test("is shared by the requests that find the gate cold, and the quota is exact", async () => {
    const { keyHash, gate } = await openGate(5);
    await runInDurableObject(gate(), async (_, state) => {
      const { DB, trips } = observedDatabase();
      const cold = new KeyGate(state, { ...env, DB });
      const ask = (count: number) => Array.from({ length: count }, () => cold.admit(keyHash));
      const shared = ask(10);
      await Promise.race(shared);
      expect(trips).toHaveLength(1);
      const forgotten = [...ask(5), cold.forget(), ...ask(5), cold.forget(), ...ask(5)];
      const verdicts = (await Promise.all([...shared, ...forgotten])).map((each) => each?.verdict);
      expect(verdicts.filter((verdict) => verdict === "admitted")).toHaveLength(5);
    });
  });
});

/** A key that was never used. */
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

describe("the use of a key", () => {
  test("is noted the first time, an hour later, and after `forget`", async () => {
    const { admit, gate, lastUsedAt } = await openUnused();
    await admit(NOW);
    expect(await lastUsedAt()).toBe(NOW);
    await admit(NOW + HOUR_MS - 1);
    expect(await lastUsedAt()).toBe(NOW);
    await admit(NOW + HOUR_MS);
    expect(await lastUsedAt()).toBe(NOW + HOUR_MS);
    await gate().forget();
    await admit(NOW + HOUR_MS + 2);
    expect(await lastUsedAt()).toBe(NOW + HOUR_MS + 2);
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
