import { expect, test } from "vitest";
import { knownKeys, REFUSING_MS, recentRefusals } from "../../../src/rate-limit/isolate-cache.ts";

test("an isolate forgets the keys that it used longest ago, beyond ten thousand", () => {
  const known = { workspaceId: "", database: "DB", earlyReads: 1 };
  const note = (keyHash: string) => knownKeys.set(keyHash, known);
  const hashes = Array.from({ length: 10_000 }, (_, i) => `hash_${i}`);
  for (const hash of hashes) note(hash);
  note("hash_0");
  note("hash_new");
  expect(knownKeys.get("hash_0")).toBeDefined();
  expect(knownKeys.get("hash_1")).toBeUndefined();
  expect(knownKeys.get("hash_2")).toBeDefined();
  expect(knownKeys.get("hash_new")).toBeDefined();
});

/** Caches a refusal of a gate that was called at 0, and returns what the isolate repeats of it at a time. */
function repeatAt(now: number, { remaining = 0, resetMs = 60_000 }) {
  const name = crypto.randomUUID();
  const refusal = {
    verdict: "rate_limited" as const,
    keyId: "key_1",
    workspaceId: "wks_1",
    rateLimit: { limit: 5, remaining, resetMs },
    expiresAt: null,
  };
  recentRefusals.set(name, refusal, 0);
  return recentRefusals.findUsedUp(name, now)?.rateLimit ?? null;
}

test.each([
  ["for two seconds", {}, REFUSING_MS],
  ["until its window ends", { resetMs: 1_500 }, 1_500],
])("An isolate repeats a refusal %s, to the millisecond", (_, refusal, end) => {
  const { resetMs = 60_000 } = refusal as { resetMs?: number };
  const repeated = { limit: 5, remaining: 0, resetMs: resetMs - end + 1 };
  expect(repeatAt(end - 1, refusal)).toEqual(repeated);
  expect(repeatAt(end, refusal)).toBe(null);
});

test("An isolate repeats no refusal whose window has requests left", () => {
  expect(repeatAt(1, { remaining: 1 })).toBe(null);
});
