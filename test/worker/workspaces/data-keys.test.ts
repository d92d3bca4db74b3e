import { expect, test } from "vitest";
import { decryptJson, encryptJson } from "../../../src/encryption/seal.ts";
import { createDataKey, openDataKey, openedDataKeys } from "../../../src/workspaces/data-keys.ts";

const KEYS = `test:${btoa("k".repeat(32))}`;
const OTHER_KEYS = `test:${btoa("o".repeat(32))}`;

async function makeKey(workspaceId: string): Promise<CryptoKey> {
  const sealed = await createDataKey(KEYS, workspaceId);
  return (await openDataKey(KEYS, workspaceId, sealed)) as CryptoKey;
}

test("Personal data is decrypted only with its key, for its lead", async () => {
  const data = { name: "Zoë", email: null, phone: null, customFields: {} };
  const key = await makeKey("wks_2");
  const sealed = await encryptJson(key, "lea_1", data);
  expect(await encryptJson(key, "lea_1", data)).not.toBe(sealed);
  await expect(decryptJson(await makeKey("wks_3"), "lea_1", sealed)).rejects.toThrow();
  await expect(decryptJson(key, "lea_2", sealed)).rejects.toThrow();
  for (let i = 0; i < sealed.length / 2; i++) {
    const changed = Uint8Array.fromHex(sealed);
    changed[i] = (changed[i] ?? 0) ^ 1;
    await expect(decryptJson(key, "lea_1", changed.toHex())).rejects.toThrow();
  }
});

test("a data key is decrypted by its keys only, for its workspace only, and once per isolate", async () => {
  const sealed = await createDataKey(KEYS, "wks_5");
  await expect(openDataKey(OTHER_KEYS, "wks_5", sealed)).rejects.toThrow();
  await expect(openDataKey(KEYS, "wks_6", sealed)).rejects.toThrow();
  expect(openedDataKeys.get("wks_5")).toBeUndefined();
  const opened = await openDataKey(KEYS, "wks_5", sealed);
  expect(opened).toBe(openedDataKeys.get("wks_5"));
  expect(await openDataKey(KEYS, "wks_5", sealed)).toBe(opened);
  expect(await openDataKey(KEYS, "wks_7", null)).toBeNull();
});

test("a data key is kept by the isolate, with a thousand others at most", async () => {
  await makeKey("wks_first");
  for (let i = 0; i < 1_000; i++) await makeKey(`wks_many_${i}`);
  expect(openedDataKeys.get("wks_first")).toBeUndefined();
  expect(openedDataKeys.get("wks_many_0")).toBeDefined();
  expect(openedDataKeys.get("wks_many_999")).toBeDefined();
});
