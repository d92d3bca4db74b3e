import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { KeyGate } from "../../../src/quota/key-gate.ts";
import { unknownKey } from "../../support/api.ts";
import { observedDatabase } from "../../support/deliveries.ts";
import { openKey, race } from "../../support/gates.ts";

const NOW = 1_790_000_000_000;
const WINDOW_MS = env.QUOTA_WINDOW_SECONDS * 1000;

/** A key of a new workspace, and its gate at `NOW`. */
async function openGate(requestsPerWindow?: number) {
  const key = await openKey(requestsPerWindow);
  return { ...key, stub: key.gate(), admit: (now = NOW) => key.admit(now) };
}

/** Changes the key without telling the gate, as if `forget` had been lost. */
async function revokeUnnoticed(keyId: string) {
  await env.DB.prepare("UPDATE api_keys SET revoked_at = 1 WHERE id = ?").bind(keyId).run();
}

function admitted(workspaceId: string, limit: number, remaining: number, resetSeconds: number) {
  const rateLimit = { limit, remaining, resetMs: resetSeconds * 1000 };
  const keyId = expect.stringMatching(/^key_/);
  const bookmark = expect.any(String);
  return { verdict: "admitted", keyId, workspaceId, rateLimit, database: "DB", bookmark };
}

describe("the quota of a key", () => {
  test("is `requestsPerWindow`, counted down with each request, then refused", async () => {
    const { workspaceId, keyId, admit } = await openGate(2);
    expect(await admit()).toEqual(admitted(workspaceId, 2, 1, 60));
    expect(await admit()).toEqual(admitted(workspaceId, 2, 0, 60));
    const rateLimit = { limit: 2, remaining: 0, resetMs: 60_000 };
    const known = { keyId, workspaceId, expiresAt: null };
    const exceeded = { verdict: "quota_exceeded", ...known, rateLimit };
    expect(await admit()).toEqual(exceeded);
    expect(await admit()).toEqual(exceeded);
  });

  test("is the deployment's if the key has none of its own", async () => {
    const { workspaceId, admit } = await openGate();
    expect(await admit()).toEqual(
      admitted(workspaceId, env.QUOTA_REQUESTS, env.QUOTA_REQUESTS - 1, env.QUOTA_WINDOW_SECONDS),
    );
  });

  test("is full again when the window opened by the first request is over", async () => {
    const { workspaceId, admit } = await openGate(1);
    expect(await admit(NOW)).toEqual(admitted(workspaceId, 1, 0, 60));
    expect(await admit(NOW + WINDOW_MS - 1)).toMatchObject({
      verdict: "quota_exceeded",
      rateLimit: { limit: 1, remaining: 0, resetMs: 1 },
    });
    // A refused request opens no window; this one does.
    expect(await admit(NOW + WINDOW_MS + 7_500)).toEqual(admitted(workspaceId, 1, 0, 60));
    expect(await admit(NOW + 2 * WINDOW_MS + 7_499)).toMatchObject({ verdict: "quota_exceeded" });
    expect(await admit(NOW + 2 * WINDOW_MS + 7_500)).toEqual(admitted(workspaceId, 1, 0, 60));
  });

  test("is exact if more requests come at once than it admits", async () => {
    const { admit } = await openGate(50);
    const admissions = await Promise.all(Array.from({ length: 150 }, () => admit()));
    const left = admissions.flatMap((admission) =>
      admission.verdict === "admitted" ? admission.rateLimit.remaining : [],
    );
    expect(left.sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i));
  });

  test("survives eviction of the object, including the start of the window", async () => {
    const { workspaceId, admit, stub } = await openGate(3);
    await admit(NOW);
    await admit(NOW + 1_000);
    await evictDurableObject(stub);
    expect(await admit(NOW + 20_000)).toEqual(admitted(workspaceId, 3, 0, 40));
    await evictDurableObject(stub);
    expect(await admit(NOW + 21_000)).toMatchObject({ verdict: "quota_exceeded" });
    expect(await admit(NOW + WINDOW_MS)).toEqual(admitted(workspaceId, 3, 2, 60));
  });

  test("belongs to a single key, even within one workspace", async () => {
    const first = await openGate(1);
    const { workspaceId } = first;
    const second = await exports.Platform.createApiKey({ workspaceId, requestsPerWindow: 1 });
    const keyHash = await hashApiKey(second.apiKey);
    expect(await first.admit()).toMatchObject({ verdict: "admitted" });
    expect(await first.admit()).toMatchObject({ verdict: "quota_exceeded" });
    expect(await env.KEY_GATE.getByName(keyHash).admit(keyHash, NOW)).toEqual(
      admitted(first.workspaceId, 1, 0, 60),
    );
  });
});

describe("the standing of a key", () => {
  test("is unknown if nobody created the key", async () => {
    const keyHash = await hashApiKey(await unknownKey());
    expect(await env.KEY_GATE.getByName(keyHash).admit(keyHash, NOW)).toEqual({
      verdict: "unknown_key",
    });
  });

  test("is read once and kept, even across an eviction", async () => {
    const { keyId, stub, admit } = await openGate();
    await admit();
    await revokeUnnoticed(keyId);
    expect(await admit()).toMatchObject({ verdict: "admitted" });
    await evictDurableObject(stub);
    expect(await admit()).toMatchObject({ verdict: "admitted" });
  });

  test.each([false, true])(
    "is dropped by `forget`, from storage too: evicted %s",
    async (evicted) => {
      const { keyId, stub, admit } = await openGate();
      await admit();
      await revokeUnnoticed(keyId);
      await stub.forget();
      if (evicted) await evictDurableObject(stub);
      expect(await admit()).toEqual({ verdict: "unknown_key" });
    },
  );

  test("is read again after an hour, whatever the gate has been told", async () => {
    const { keyId, admit } = await openGate();
    await admit(NOW);
    await revokeUnnoticed(keyId);
    expect(await admit(NOW + 3_600_000)).toMatchObject({ verdict: "admitted" });
    expect(await admit(NOW + 3_600_001)).toEqual({ verdict: "unknown_key" });
  });

  test("does not affect the count when it is forgotten", async () => {
    const { workspaceId, stub, admit } = await openGate(3);
    await admit();
    await stub.forget();
    expect(await admit()).toEqual(admitted(workspaceId, 3, 1, 60));
  });
});

test.each([
  ["a revocation", "UPDATE api_keys SET revoked_at = 1 WHERE id = ?1 OR 0 = ?2", "unknown_key"],
  [
    "a loss of access",
    "UPDATE workspaces SET access_granted = 0 WHERE id IN (?1, ?2)",
    "access_denied",
  ],
  [
    "access that is back",
    "UPDATE workspaces SET access_granted = 1 WHERE id IN (?1, ?2)",
    "admitted",
  ],
])("a standing that was being read before %s does not return", async (what, change, verdict) => {
  const key = await openGate();
  const { workspaceId, keyId, stub, admit } = key;
  if (what === "access that is back")
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
  const verdicts = await race(key, async (gate) => {
    await env.DB.prepare(change).bind(keyId, workspaceId).run();
    gate.forget();
  });
  expect(verdicts).toEqual([verdict, verdict]);
  await evictDurableObject(stub);
  expect(await admit()).toMatchObject({ verdict });
});

test("requests that find the gate cold share one look-up, and the quota is exact", async () => {
  const { keyHash, stub } = await openGate(5);
  await runInDurableObject(stub, async (_, state) => {
    const { DB, trips } = observedDatabase();
    const gate = new KeyGate(state, { ...env, DB });
    const ask = (count: number) => Array.from({ length: count }, () => gate.admit(keyHash, NOW));
    const shared = ask(10);
    await Promise.race(shared);
    expect(trips).toHaveLength(1);
    const forgotten = [...ask(5), gate.forget(), ...ask(5), gate.forget(), ...ask(5)];
    const verdicts = (await Promise.all([...shared, ...forgotten])).map((each) => each?.verdict);
    expect(verdicts.filter((verdict) => verdict === "admitted")).toHaveLength(5);
  });
});
