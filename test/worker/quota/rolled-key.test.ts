import { evictDurableObject } from "cloudflare:test";
import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { openKey, race } from "../../support/gates.ts";

const { Platform } = exports;

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
    const { workspaceId, keyId, gate, admit } = await openKey();
    if (use === "used before") expect(await admit()).toMatchObject({ verdict: "admitted" });
    const end = await roll(workspaceId, keyId);
    expect(await admit(end - 1)).toMatchObject({ verdict: "admitted" });
    // It keeps the expiry with the standing.
    await evictDurableObject(gate());
    expect(await admit(end - 1)).toMatchObject({ verdict: "admitted" });
    expect(await admit(end)).toEqual(UNKNOWN);
    await evictDurableObject(gate());
    expect(await admit(end)).toEqual(UNKNOWN);
    expect(await admit(end + 10_000_000)).toEqual(UNKNOWN);
  });

  test("returns the expiry with a refusal that an isolate may remember", async () => {
    const { workspaceId, keyId, admit } = await openKey(1);
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
  test("when the key is rolled with an overlap gets its expiry", async () => {
    const key = await openKey();
    let end = 0;
    const verdicts = await race(
      key,
      async (gate) => {
        end = await roll(key.workspaceId, key.keyId);
        gate.forget();
      },
      () => [end - 1, end],
    );
    expect(verdicts).toEqual(["admitted", "admitted", "unknown_key"]);
  });

  test("when the key expires admits nobody", async () => {
    const key = await openKey();
    const end = await roll(key.workspaceId, key.keyId, 1);
    const expired = () => new Promise((resolve) => setTimeout(resolve, end - Date.now() + 20));
    const verdicts = await race(key, expired);
    expect(verdicts).toEqual(["unknown_key", "unknown_key"]);
  });
});
