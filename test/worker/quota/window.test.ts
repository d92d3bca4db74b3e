import { describe, expect, test } from "vitest";
import {
  rateLimitOf,
  resetSeconds,
  take,
  type Window,
  windowAt,
} from "../../../src/quota/window.ts";

const RULE = { limit: 3, windowMs: 60_000 };
const OPEN: Window = { startedAt: 1_000_000, count: 2 };

describe("a window", () => {
  test.each([
    ["is opened by its first request", undefined, 5_000],
    ["stays the same for its length", OPEN, 1_000_000],
    ["stays the same for its length", OPEN, 1_059_999],
    ["is then followed by a new one", OPEN, 1_060_000],
    ["is followed by a new one, however late", OPEN, 9_000_000],
    ["is the same for a clock that is behind by less than its length", OPEN, 940_001],
    ["is followed by a new one for a clock that is behind by its length", OPEN, 940_000],
  ])("%s: %j at %i", (title, window, now) => {
    const isSame = title.includes("the same");
    expect(windowAt(window, RULE, now)).toEqual(isSame ? OPEN : { startedAt: now, count: 0 });
  });

  test("admits as many as its limit and no more", () => {
    const taken = [0, 1, 2, 3, 4].map((count) => take({ startedAt: 0, count }, RULE)?.count);
    expect(taken).toEqual([1, 2, 3, undefined, undefined]);
  });

  test.each([
    [OPEN, 1_000_000, 1, 60_000, 60],
    [OPEN, 1_000_001, 1, 59_999, 60],
    [OPEN, 1_001_000, 1, 59_000, 59],
    [OPEN, 1_059_999, 1, 1, 1],
    // A clock that is behind does not extend it.
    [OPEN, 999_999, 1, 60_000, 60],
    // Its limit was lowered.
    [{ startedAt: 0, count: 9 }, 0, 0, 60_000, 60],
  ])("%j at %i leaves %i, and closes in %i ms: in %i s, rounded up", (window, now, ...expected) => {
    const [remaining, resetMs, seconds] = expected;
    const rateLimit = rateLimitOf(window, RULE, now);
    expect(rateLimit).toEqual({ limit: 3, remaining, resetMs });
    expect(resetSeconds(rateLimit)).toBe(seconds);
  });
});
