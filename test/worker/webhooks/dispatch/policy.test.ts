import { describe, expect, test } from "vitest";
import { RETRY_WAITS_SECONDS } from "../../../../src/contract/limits.ts";
import {
  type Attempt,
  adjustPace,
  type Decision,
  decide,
  type Pace,
} from "../../../../src/webhooks/dispatch/policy.ts";
import { type Outcome, succeeded } from "../../../../src/webhooks/outcome.ts";
import { answered } from "../../../support/deliveries.ts";

const SECOND_MS = 1000;

/** The wait after attempt n. */
const LADDER = RETRY_WAITS_SECONDS.map((seconds, i): [attempt: number, waitMs: number] => [
  i + 1,
  seconds * SECOND_MS,
]);
const [[, FIRST_MS] = [1, 0]] = LADDER;
const LAST_ATTEMPT = LADDER.length + 1;

/** No jitter: exactly the rung. */
const NONE = 0;

function wait(waitMs: number): Decision {
  return { state: "pending", waitMs: Math.round(waitMs) };
}

describe("an attempt succeeds", () => {
  test("with any 2xx, at any attempt, and the delivery is delivered", () => {
    for (let status = 200; status < 300; status++) {
      expect(succeeded(answered(status))).toBe(true);
      for (const attempt of [1, 5, LAST_ATTEMPT])
        expect(decide(answered(status), attempt, NONE)).toEqual({ state: "delivered" });
    }
  });

  test("even if the 2xx has a Retry-After", () => {
    expect(decide(answered(200, 600), 1, NONE)).toEqual({ state: "delivered" });
  });
});

describe("an attempt fails", () => {
  const statuses = [199, 300, 302, 304, 308, 400, 401, 404, 410, 429, 500, 503, 530];
  test.each<Outcome>([
    ...statuses.map((status) => answered(status)),
    { kind: "timed_out" },
    { kind: "unreachable" },
    { kind: "refused" },
  ])("with %j, and is retried until its last attempt", (outcome) => {
    expect(succeeded(outcome)).toBe(false);
    expect(decide(outcome, 1, NONE)).toEqual(wait(FIRST_MS));
    expect(decide(outcome, LAST_ATTEMPT, NONE)).toEqual({ state: "exhausted" });
  });
});

describe("the wait after a failed attempt", () => {
  test.each(LADDER)("number %i is lengthened by up to 20 %, uniformly", (attempt, waitMs) => {
    const failed = (random: number) => decide(answered(500), attempt, random);
    expect(failed(0)).toEqual(wait(waitMs));
    expect(failed(0.25)).toEqual(wait(1.05 * waitMs));
    expect(failed(0.75)).toEqual(wait(1.15 * waitMs));
    expect(failed(1)).toEqual(wait(1.2 * waitMs));
  });
});

describe("Retry-After", () => {
  test.each([429, 503])("on %i lengthens the wait", (status) => {
    for (const [attempt, waitMs] of LADDER) {
      const asked = answered(status, (1.5 * waitMs) / SECOND_MS);
      expect(decide(asked, attempt, NONE)).toEqual(wait(1.5 * waitMs));
    }
  });

  test.each(LADDER)("lengthens wait number %i to at most twice its rung", (attempt, ms) => {
    expect(decide(answered(503, (2 * ms) / SECOND_MS), attempt, NONE)).toEqual(wait(2 * ms));
    expect(decide(answered(429, (2 * ms) / SECOND_MS + 1), attempt, 1)).toEqual(wait(2 * ms));
    expect(decide(answered(503, 999_999_999), attempt, 0)).toEqual(wait(2 * ms));
  });

  test("never shortens the wait, jitter included", () => {
    const firstSeconds = FIRST_MS / SECOND_MS;
    expect(decide(answered(503, 0), 1, NONE)).toEqual(wait(FIRST_MS));
    expect(decide(answered(503, firstSeconds - 1), 1, NONE)).toEqual(wait(FIRST_MS));
    expect(decide(answered(429, firstSeconds + 1), 1, 1)).toEqual(wait(1.2 * FIRST_MS));
    expect(decide(answered(429, firstSeconds - 1), 1, 0)).toEqual(wait(FIRST_MS));
  });

  test("never prolongs an exhausted delivery", () => {
    expect(decide(answered(503, 60), LAST_ATTEMPT, NONE)).toEqual({ state: "exhausted" });
  });

  test.each([302, 400, 408, 425, 500, 502, 504])("on %i is ignored", (status) => {
    expect(decide(answered(status, 20), 1, NONE)).toEqual(wait(FIRST_MS));
  });
});

describe("the pace of a subscription", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const HEALTHY = { backoff: 0, nextAt: 0, failures: 0, failingSince: null };
  const NEW: Pace = { ...HEALTHY, postsAtOnce: 1, slow: false };
  const OK = answered(200);
  const FAILED = answered(500);

  /** An attempt that started at `NOW` and took this long. */
  function took(outcome: Outcome, durationMs = 100, startedAt = NOW): Attempt {
    return { outcome, startedAt, endedAt: startedAt + durationMs };
  }

  /** The pace after a series of attempts. */
  function paceAfter(pace: Pace, ...attempts: Attempt[]): Pace {
    return attempts.reduce((before, attempt) => adjustPace(before, attempt, NONE), pace);
  }

  test("allows one more concurrent post after each fast success, up to six", () => {
    const rises = Array.from({ length: 8 }, (_, i) =>
      paceAfter(NEW, ...Array.from({ length: i }, () => took(OK))),
    );
    expect(rises.map(({ postsAtOnce }) => postsAtOnce)).toEqual([1, 2, 3, 4, 5, 6, 6, 6]);
  });

  test.each([
    [6, 3],
    [5, 2],
    [3, 1],
    [2, 1],
  ])("is halved from %i to %i by a failure, without a backoff", (postsAtOnce, halved) => {
    const failing = { ...NEW, failures: 1, failingSince: NOW + 100 };
    const after = paceAfter({ ...NEW, postsAtOnce }, took(FAILED));
    expect(after).toEqual({ ...failing, postsAtOnce: halved });
  });

  test.each([
    [6, 3],
    [3, 1],
    [1, 1],
  ])("is halved from %i to %i by a slow success, which is not a failure", (postsAtOnce, halved) => {
    const pace = { ...NEW, postsAtOnce };
    expect(paceAfter(pace, took(OK, 1_999)).slow).toBe(false);
    expect(paceAfter(pace, took(OK, 2_000))).toEqual({ ...NEW, postsAtOnce: halved, slow: true });
  });

  test("is slow until a fast success; failures do not make it fast", () => {
    const slow = paceAfter(NEW, took(OK, 2_000));
    expect(paceAfter(slow, took(FAILED)).slow).toBe(true);
    expect(paceAfter(slow, took(OK))).toEqual({ ...NEW, postsAtOnce: 2 });
    expect(paceAfter(NEW, took({ kind: "timed_out" }, 10_000)).slow).toBe(true);
  });

  test("backs off after a failure at one post at a time, for the first rung", () => {
    const failing = { failures: 1, failingSince: NOW + 100 };
    const closed = { ...NEW, ...failing, backoff: 1, nextAt: NOW + 100 + FIRST_MS };
    expect(paceAfter(NEW, took(FAILED))).toEqual(closed);
  });

  test("climbs the ladder with each failed probe, and stays on the last rung", () => {
    let pace = NEW;
    const waits: number[] = [];
    for (let i = 0; i < LADDER.length + 2; i++) {
      const startedAt = Math.max(NOW, pace.nextAt);
      pace = paceAfter(pace, took(FAILED, 100, startedAt));
      expect([pace.postsAtOnce, pace.backoff]).toEqual([1, i + 1]);
      waits.push(pace.nextAt - startedAt - 100);
    }
    const rungs = LADDER.map(([, waitMs]) => waitMs);
    expect(waits).toEqual([...rungs, rungs.at(-1), rungs.at(-1)]);
    expect(pace).toMatchObject({ failures: LADDER.length + 2, failingSince: NOW + 100 });
  });

  test.each([0, 0.5, 1])("waits at least the rung, and up to 20 %% more: %d", (random) => {
    const { nextAt } = adjustPace(NEW, took(FAILED), random);
    expect(nextAt - NOW - 100).toBe(Math.round(FIRST_MS * (1 + 0.2 * random)));
  });

  test("ends its backoff with the first successful probe, at one post at a time", () => {
    const closed = { ...NEW, backoff: 4, nextAt: NOW, failures: 9, failingSince: 1, slow: true };
    expect(paceAfter(closed, took(OK))).toEqual(NEW);
    expect(paceAfter(closed, took(OK, 2_000))).toEqual({ ...NEW, slow: true });
    expect(paceAfter(closed, took(OK), took(OK))).toEqual({ ...NEW, postsAtOnce: 2 });
  });

  test.each([429, 503])("backs off immediately after a %i that asks for a wait", (status) => {
    const pace = { ...NEW, postsAtOnce: 6 };
    const closed = { ...NEW, backoff: 1, failures: 1, failingSince: NOW + 100 };
    const wait = (ms: number) => ({ ...closed, nextAt: NOW + 100 + ms });
    const asked = (ms: number) => took(answered(status, ms / SECOND_MS));
    expect(paceAfter(pace, asked(1.5 * FIRST_MS))).toEqual(wait(1.5 * FIRST_MS));
    // At least the rung, and at most twice as long.
    expect(paceAfter(pace, asked(0.3 * FIRST_MS))).toEqual(wait(FIRST_MS));
    expect(paceAfter(pace, asked(360 * FIRST_MS))).toEqual(wait(2 * FIRST_MS));
    expect(paceAfter({ ...pace, postsAtOnce: 1, backoff: 3 }, asked(1e9))).toEqual({
      ...closed,
      backoff: 4,
      nextAt: NOW + 100 + 2 * (RETRY_WAITS_SECONDS[3] ?? 0) * SECOND_MS,
    });
    // Without Retry-After, it is a failure like any other.
    for (const asked of [null, 0])
      expect(paceAfter(pace, took(answered(status, asked)))).toMatchObject({
        postsAtOnce: 3,
        backoff: 0,
      });
  });

  test.each([400, 500, 502])("does not back off for a Retry-After on %i", (status) => {
    const pace = { ...NEW, postsAtOnce: 6 };
    const after = paceAfter(pace, took(answered(status, 60)));
    expect(after).toMatchObject({ postsAtOnce: 3, nextAt: 0 });
  });

  test("ignores posts already in progress when the backoff began: their failures only count", () => {
    const closed = { ...NEW, backoff: 1, nextAt: NOW + 1, failures: 1, failingSince: NOW - 1 };
    expect(paceAfter(closed, took(FAILED, 5_000))).toEqual({ ...closed, slow: true, failures: 2 });
    expect(paceAfter(closed, took(answered(503, 60)))).toEqual({ ...closed, failures: 2 });
    expect(paceAfter(closed, took(OK))).toEqual({ ...closed, failures: 0, failingSince: null });
    // A probe never starts early.
    expect(paceAfter({ ...closed, nextAt: NOW }, took(FAILED))).toMatchObject({ backoff: 2 });
  });
});
