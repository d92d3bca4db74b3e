import { expect, test } from "vitest";
import { knownKeys } from "../../../src/quota/memory.ts";

test("an isolate forgets the keys that it used longest ago, beyond ten thousand", () => {
  const note = (keyId: string) =>
    knownKeys.set(keyId, { keyId, workspaceId: "", database: "DB", bookmark: null });
  const ids = Array.from({ length: 10_000 }, (_, i) => `key_${i}`);
  for (const id of ids) note(id);
  note("key_0");
  note("key_new");
  expect(knownKeys.get("key_0")).toBeDefined();
  expect(knownKeys.get("key_1")).toBeUndefined();
  expect(knownKeys.get("key_2")).toBeDefined();
  expect(knownKeys.get("key_new")).toBeDefined();
});
