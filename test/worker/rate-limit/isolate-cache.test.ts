import { expect, test } from "vitest";
import { knownKeys } from "../../../src/rate-limit/isolate-cache.ts";

test("an isolate forgets the keys that it used longest ago, beyond ten thousand", () => {
  const note = (keyHash: string) =>
    knownKeys.set(keyHash, { workspaceId: "", database: "DB", bookmark: null });
  const hashes = Array.from({ length: 10_000 }, (_, i) => `hash_${i}`);
  for (const hash of hashes) note(hash);
  note("hash_0");
  note("hash_new");
  expect(knownKeys.get("hash_0")).toBeDefined();
  expect(knownKeys.get("hash_1")).toBeUndefined();
  expect(knownKeys.get("hash_2")).toBeDefined();
  expect(knownKeys.get("hash_new")).toBeDefined();
});
