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
  test("is opened by its first request, stays the same for its length, and then a new one opens", () => {
    expect(windowAt(undefined, RULE, 5_000)).toEqual({ startedAt: 5_000, count: 0 });
    expect(windowAt(OPEN, RULE, 1_000_000)).toBe(OPEN);
    expect(windowAt(OPEN, RULE, 1_059_999)).toBe(OPEN);
    expect(windowAt(OPEN, RULE, 1_060_000)).toEqual({ startedAt: 1_060_000, count: 0 });
    expect(windowAt(OPEN, RULE, 9_000_000)).toEqual({ startedAt: 9_000_000, count: 0 });
  });

  test("is the same for a clock that is behind by less than its length, and not extended by it", () => {
    expect(windowAt(OPEN, RULE, 999_999)).toBe(OPEN);
    expect(windowAt(OPEN, RULE, 940_001)).toBe(OPEN);
    expect(windowAt(OPEN, RULE, 940_000)).toEqual({ startedAt: 940_000, count: 0 });
    expect(rateLimitOf(OPEN, RULE, 999_999)).toEqual({ limit: 3, remaining: 1, resetMs: 60_000 });
  });

  test("admits as many as its limit and no more", () => {
    let window = Object.freeze(windowAt(undefined, RULE, 0));
    for (const count of [1, 2, 3]) {
      const taken = take(window, RULE);
      expect(taken).toEqual({ startedAt: 0, count });
      window = taken as Window;
    }
    expect(take(window, RULE)).toBeNull();
    expect(take({ startedAt: 0, count: 4 }, RULE)).toBeNull();
  });
});

describe("the rate limit of a window", () => {
  test("give the limit, what is left and the seconds until it closes, rounded up", () => {
    expect(rateLimitOf(OPEN, RULE, 1_000_001)).toEqual({ limit: 3, remaining: 1, resetMs: 59_999 });
    const at = (now: number) => resetSeconds(rateLimitOf(OPEN, RULE, now));
    expect(at(1_000_000)).toBe(60);
    expect(at(1_000_001)).toBe(60);
    expect(at(1_001_000)).toBe(59);
    expect(at(1_059_999)).toBe(1);
  });

  test("never fall below zero if the limit was lowered in the meantime", () => {
    const { remaining } = rateLimitOf({ startedAt: 0, count: 9 }, RULE, 0);
    expect(remaining).toBe(0);
  });
});
