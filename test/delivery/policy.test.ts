import { describe, expect, test } from "vitest";
import { judge, type Outcome, succeeded, type Verdict } from "../../src/delivery/policy.ts";
import { answered } from "../support/deliveries.ts";

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** The ladder as design.md writes it: the wait after attempt n. */
const LADDER: [attempt: number, waitMs: number][] = [
  [1, 10 * SECOND_MS],
  [2, MINUTE_MS],
  [3, 5 * MINUTE_MS],
  [4, 30 * MINUTE_MS],
  [5, 2 * HOUR_MS],
  [6, 5 * HOUR_MS],
  [7, 10 * HOUR_MS],
  [8, 14 * HOUR_MS],
  [9, 20 * HOUR_MS],
  [10, 24 * HOUR_MS],
];

/** The middle of the jitter: the rung itself. */
const MIDDLE = 0.5;

function wait(waitMs: number): Verdict {
  return { state: "pending", waitMs: Math.round(waitMs) };
}

describe("an attempt succeeds", () => {
  test("with every 2xx, whichever attempt it is, and the delivery is delivered", () => {
    for (let status = 200; status < 300; status++) {
      expect(succeeded(answered(status))).toBe(true);
      for (const attempt of [1, 5, 11])
        expect(judge(answered(status), attempt, MIDDLE)).toEqual({ state: "delivered" });
    }
  });

  test("whatever a 2xx says in Retry-After", () => {
    expect(judge(answered(200, 600), 1, MIDDLE)).toEqual({ state: "delivered" });
  });
});

describe("an attempt fails", () => {
  test.each<[string, Outcome]>([
    ["1xx", answered(199)],
    ["300, a redirect that is never followed", answered(300)],
    ["301", answered(301)],
    ["302", answered(302)],
    ["304", answered(304)],
    ["307", answered(307)],
    ["308", answered(308)],
    ["400", answered(400)],
    ["401", answered(401)],
    ["404", answered(404)],
    ["410", answered(410)],
    ["429", answered(429)],
    ["500", answered(500)],
    ["503", answered(503)],
    ["530", answered(530)],
    ["no answer in time", { kind: "timed_out" }],
    ["no connection", { kind: "unreachable" }],
    ["a URL that is refused", { kind: "refused" }],
  ])("with %s, and is tried again after 10 s", (_, outcome) => {
    expect(succeeded(outcome)).toBe(false);
    expect(judge(outcome, 1, MIDDLE)).toEqual(wait(10 * SECOND_MS));
    expect(judge(outcome, 11, MIDDLE)).toEqual({ state: "exhausted" });
  });
});

describe("the wait after a failed attempt", () => {
  test.each(LADDER)("number %i is %i ms", (attempt, waitMs) => {
    expect(judge(answered(500), attempt, MIDDLE)).toEqual(wait(waitMs));
  });

  test("is the last one after 10 attempts: the 11th exhausts the delivery, after some 76 hours", () => {
    expect(judge(answered(500), 11, MIDDLE)).toEqual({ state: "exhausted" });
    const hours = LADDER.reduce((sum, [, waitMs]) => sum + waitMs, 0) / HOUR_MS;
    expect(hours).toBeGreaterThan(75);
    expect(hours).toBeLessThan(77);
  });

  test.each(LADDER)("number %i is spread by 20 % up and down, evenly", (attempt, waitMs) => {
    const failed = (random: number) => judge(answered(500), attempt, random);
    expect(failed(0)).toEqual(wait(0.8 * waitMs));
    expect(failed(0.25)).toEqual(wait(0.9 * waitMs));
    expect(failed(0.75)).toEqual(wait(1.1 * waitMs));
    expect(failed(1)).toEqual(wait(1.2 * waitMs));
  });
});

describe("Retry-After", () => {
  test.each([429, 503])("on %i lengthens the wait", (status) => {
    expect(judge(answered(status, 15), 1, MIDDLE)).toEqual(wait(15 * SECOND_MS));
    expect(judge(answered(status, 45 * 60), 4, MIDDLE)).toEqual(wait(45 * MINUTE_MS));
  });

  test.each(LADDER)("lengthens the wait number %i to twice its rung at the most", (attempt, ms) => {
    expect(judge(answered(503, (2 * ms) / SECOND_MS), attempt, MIDDLE)).toEqual(wait(2 * ms));
    expect(judge(answered(429, (2 * ms) / SECOND_MS + 1), attempt, 1)).toEqual(wait(2 * ms));
    expect(judge(answered(503, 999_999_999), attempt, 0)).toEqual(wait(2 * ms));
  });

  test("never shortens the wait, jitter included", () => {
    expect(judge(answered(503, 0), 1, MIDDLE)).toEqual(wait(10 * SECOND_MS));
    expect(judge(answered(503, 9), 1, MIDDLE)).toEqual(wait(10 * SECOND_MS));
    expect(judge(answered(429, 11), 1, 1)).toEqual(wait(12 * SECOND_MS));
    expect(judge(answered(429, 9), 1, 0)).toEqual(wait(9 * SECOND_MS));
  });

  test("never makes an exhausted delivery live longer", () => {
    expect(judge(answered(503, 60), 11, MIDDLE)).toEqual({ state: "exhausted" });
  });

  test.each([302, 400, 408, 425, 500, 502, 504])("on %i counts for nothing", (status) => {
    expect(judge(answered(status, 20), 1, MIDDLE)).toEqual(wait(10 * SECOND_MS));
  });
});
