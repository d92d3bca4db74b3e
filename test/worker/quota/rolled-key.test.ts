import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { type Admission, KeyGate } from "../../../src/quota/key-gate.ts";
import { openWorkspace } from "../../support/api.ts";
import { slowDatabase } from "../../support/slow-database.ts";

const { Platform } = exports;

/** A key and its gate. */
async function openKey(key: { requestsPerWindow?: number } = {}) {
  const workspace = await openWorkspace(key);
  const keyHash = await hashApiKey(workspace.apiKey);
  const stub = env.KEY_GATE.getByName(keyHash);
  return { ...workspace, keyHash, stub, admit: (at?: number) => stub.admit(keyHash, at) };
}

/** Rolls a key and returns when the old one expires, Unix milliseconds. */
async function roll(workspaceId: string, keyId: string, overlapSeconds = 60): Promise<number> {
  await Platform.rollApiKey({ keyId, overlapSeconds });
  const { items } = await Platform.listApiKeys({ workspaceId });
  const expiresAt = items.find((item) => item.keyId === keyId)?.expiresAt;
  return Date.parse(expiresAt ?? "");
}

const UNKNOWN = { verdict: "unknown_key" };

describe("the gate of a key that was rolled", () => {
  test.each(["used before", "never used"])("refuses it to the millisecond: %s", async (use) => {
    const { workspaceId, keyId, stub, admit } = await openKey();
    if (use === "used before") expect(await admit()).toMatchObject({ verdict: "admitted" });
    const end = await roll(workspaceId, keyId);
    expect(await admit(end - 1)).toMatchObject({ verdict: "admitted" });
    expect(await admit(end)).toEqual(UNKNOWN);
    await evictDurableObject(stub);
    expect(await admit(end)).toEqual(UNKNOWN);
    expect(await admit(end + 10_000_000)).toEqual(UNKNOWN);
  });

  test("keeps the expiry with the standing: an evicted object knows it without being told", async () => {
    const { workspaceId, keyId, stub, admit } = await openKey();
    const end = await roll(workspaceId, keyId);
    expect(await admit(end - 1)).toMatchObject({ verdict: "admitted" });
    await evictDurableObject(stub);
    expect(await admit(end - 1)).toMatchObject({ verdict: "admitted" });
    expect(await admit(end)).toEqual(UNKNOWN);
  });

  test("returns the expiry with a refusal that an isolate may remember", async () => {
    const { workspaceId, keyId, admit } = await openKey({ requestsPerWindow: 1 });
    const end = await roll(workspaceId, keyId);
    await admit(end - 100);
    expect(await admit(end - 1)).toMatchObject({ verdict: "quota_exceeded", expiresAt: end });
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await admit(end - 1)).toMatchObject({ verdict: "access_denied", expiresAt: end });
    expect(await admit(end)).toEqual(UNKNOWN);
  });

  test("does not note its use after it has expired", async () => {
    const { workspaceId, keyId, admit } = await openKey();
    const end = await roll(workspaceId, keyId);
    await admit(end);
    const { items } = await Platform.listApiKeys({ workspaceId });
    expect(items.find((item) => item.keyId === keyId)).toMatchObject({ lastUsedAt: null });
  });
});

describe("a standing that is being read", () => {
  /**
   * Lets a cold gate read the standing, does something during the read, and returns the verdict.
   */
  async function race(
    { keyHash, stub }: Awaited<ReturnType<typeof openKey>>,
    meanwhile: (gate: KeyGate) => Promise<unknown>,
    at: (admit: (at?: number) => Promise<Admission>) => Promise<Admission[]>,
  ): Promise<string[]> {
    return runInDurableObject(stub, async (_, state) => {
      const { db, reading, release } = slowDatabase();
      const gate = new KeyGate(state, { ...env, DB: db });
      const admission = gate.admit(keyHash);
      await reading;
      await meanwhile(gate);
      release();
      const admissions = [await admission, ...(await at((when) => gate.admit(keyHash, when)))];
      return admissions.map(({ verdict }) => verdict);
    });
  }

  test("when the key is rolled without an overlap does not come back", async () => {
    const key = await openKey();
    const verdicts = await race(
      key,
      async (gate) => {
        await roll(key.workspaceId, key.keyId, 0);
        // Rolling told the real gate; this test's gate is told here.
        gate.forget();
      },
      async (admit) => [await admit()],
    );
    expect(verdicts).toEqual(["unknown_key", "unknown_key"]);
    await evictDurableObject(key.stub);
    expect(await key.admit()).toEqual(UNKNOWN);
  });

  test("when the key is rolled with an overlap gets its expiry", async () => {
    const key = await openKey();
    let end = 0;
    const verdicts = await race(
      key,
      async (gate) => {
        end = await roll(key.workspaceId, key.keyId);
        gate.forget();
      },
      async (admit) => [await admit(end - 1), await admit(end)],
    );
    expect(verdicts).toEqual(["admitted", "admitted", "unknown_key"]);
  });

  test("when the key expires admits nobody", async () => {
    const key = await openKey();
    const end = await roll(key.workspaceId, key.keyId, 1);
    const verdicts = await race(
      key,
      () => new Promise((resolve) => setTimeout(resolve, end - Date.now() + 20)),
      async (admit) => [await admit()],
    );
    expect(verdicts).toEqual(["unknown_key", "unknown_key"]);
  });
});
