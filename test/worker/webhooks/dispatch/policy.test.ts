import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../../src/contract/enumerations.ts";
import { RETRY_WAITS_SECONDS, TELL_AFTER_MS } from "../../../../src/contract/limits.ts";
import {
  type Attempt,
  adjustPace,
  decide,
  type Pace,
  rejectedKinds,
} from "../../../../src/webhooks/dispatch/policy.ts";
import { type Outcome, succeeded } from "../../../../src/webhooks/outcome.ts";
import { answered } from "../../../support/deliveries.ts";

/** The wait after attempt n. */
const LADDER = RETRY_WAITS_SECONDS.map((seconds, i) => [i + 1, seconds] as const);
const FIRST = RETRY_WAITS_SECONDS[0] as number;
const LAST = RETRY_WAITS_SECONDS.at(-1) as number;
const LAST_ATTEMPT = LADDER.length + 1;
const EXHAUSTED = { state: "exhausted" };
const wait = (seconds: number) => ({ state: "pending", waitMs: Math.round(seconds * 1000) });

/** No jitter: exactly the rung. */
const NONE = 0;

test("an attempt succeeds with any 2xx, at any attempt, even if it has a Retry-After", () => {
  for (let status = 200; status < 300; status++)
    for (const attempt of [1, 5, LAST_ATTEMPT])
      expect(decide(answered(status, 600), attempt, NONE)).toEqual({ state: "delivered" });
});

test.each<Outcome>([
  ...[199, 300, 302, 308, 400, 401, 410, 429, 500, 503, 530].map((status) => answered(status)),
  { kind: "timed_out" },
  { kind: "unreachable", status: null },
  { kind: "refused" },
])("an attempt fails with %j, and is retried until its last attempt", (outcome) => {
  expect(succeeded(outcome)).toBe(false);
  expect(decide(outcome, 1, NONE)).toEqual(wait(FIRST));
  expect(decide(outcome, LAST_ATTEMPT, NONE)).toEqual(EXHAUSTED);
});

test.each(LADDER)("wait %i grows by up to 20 %, or as Retry-After asks up to twice", (n, rung) => {
  for (const random of [0, 0.25, 0.75, 1])
    expect(decide(answered(500), n, random)).toEqual(wait((1 + 0.2 * random) * rung));
  for (const status of [429, 503])
    for (const [asked, random, expected] of [
      [1.5 * rung, NONE, 1.5 * rung],
      [2 * rung, NONE, 2 * rung],
      [2 * rung + 1, 1, 2 * rung],
      [999_999_999, NONE, 2 * rung],
    ] as const)
      expect(decide(answered(status, asked), n, random)).toEqual(wait(expected));
});

test.each([
  ["never shortens the wait", answered(503, 0), 1, NONE, wait(FIRST)],
  ["never shortens the wait", answered(429, FIRST - 1), 1, NONE, wait(FIRST)],
  ["never shortens the jitter", answered(429, FIRST + 1), 1, 1, wait(1.2 * FIRST)],
  ["never prolongs an exhausted delivery", answered(503, 60), LAST_ATTEMPT, NONE, EXHAUSTED],
  ["is ignored with a 302", answered(302, 20), 1, NONE, wait(FIRST)],
  ["is ignored with a 400", answered(400, 20), 1, NONE, wait(FIRST)],
  ["is ignored with a 500", answered(500, 20), 1, NONE, wait(FIRST)],
  ["is ignored with a 502", answered(502, 20), 1, NONE, wait(FIRST)],
  ["is ignored with a 504", answered(504, 20), 1, NONE, wait(FIRST)],
])("Retry-After %s: %j", (_, outcome, attempt, random, decision) => {
  expect(decide(outcome, attempt, random)).toEqual(decision);
});

describe("the pace of a subscription", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const HEALTHY = { backoff: 0, nextAt: 0, failures: 0, failingSince: null, rejections: {} };
  const NEW: Pace = { ...HEALTHY, postsAtOnce: 1, slow: false };
  const FAILED_ONCE = { failures: 1, failingSince: NOW + 100 };
  const OK = took(answered(200));
  const SLOW_OK = took(answered(200), 2_000);
  const FAILED = took(answered(500));

  /** An attempt that started at `NOW` and took this long. */
  function took(outcome: Outcome, durationMs = 100, startedAt = NOW): Attempt {
    return { type: "lead.created", outcome, startedAt, endedAt: startedAt + durationMs };
  }

  /** The pace after a series of attempts. */
  function paceAfter(pace: Pace, ...attempts: Attempt[]): Pace {
    const after = attempts.reduce((before, attempt) => adjustPace(before, attempt, NONE), pace);
    // The kinds that it rejects are tested below.
    return { ...after, rejections: {} };
  }

  test("allows one more concurrent post after each fast success, up to six", () => {
    const rises = Array.from({ length: 8 }, (_, i) => paceAfter(NEW, ...Array(i).fill(OK)));
    expect(rises.map(({ postsAtOnce }) => postsAtOnce)).toEqual([1, 2, 3, 4, 5, 6, 6, 6]);
  });

  test.each([
    [6, 3],
    [5, 2],
    [2, 1],
    [1, 1],
  ])("is halved from %i to %i by a slow success or a failure", (postsAtOnce, halved) => {
    const pace = { ...NEW, postsAtOnce };
    expect(paceAfter(pace, took(answered(200), 1_999)).slow).toBe(false);
    expect(paceAfter(pace, SLOW_OK)).toEqual({ ...NEW, postsAtOnce: halved, slow: true });
    // At one post at a time, for the first rung.
    const backoff = postsAtOnce === 1 ? { backoff: 1, nextAt: NOW + 100 + FIRST * 1000 } : {};
    const failing = { ...NEW, ...FAILED_ONCE, ...backoff, postsAtOnce: halved };
    expect(paceAfter(pace, FAILED)).toEqual(failing);
  });

  test("is slow after one slow answer, until fast successes have earned it six posts again", () => {
    const slow = paceAfter({ ...NEW, postsAtOnce: 6 }, SLOW_OK);
    expect(slow).toEqual({ ...NEW, postsAtOnce: 3, slow: true });
    expect(paceAfter(slow, FAILED).slow).toBe(true);
    expect(paceAfter(slow, OK, OK)).toEqual({ ...NEW, postsAtOnce: 5, slow: true });
    expect(paceAfter(slow, OK, OK, OK)).toEqual({ ...NEW, postsAtOnce: 6 });
    expect(paceAfter(slow, OK, SLOW_OK, OK, OK).slow).toBe(true);
    expect(paceAfter(NEW, took({ kind: "timed_out" }, 10_000)).slow).toBe(true);
  });

  test("climbs the ladder with each failed probe, by up to 20 % more, and stays on the last rung", () => {
    let pace = NEW;
    for (const [i, rung] of [...RETRY_WAITS_SECONDS, LAST, LAST].entries()) {
      const probe = took(answered(500), 100, Math.max(NOW, pace.nextAt));
      for (const random of [1, 0.5, 0]) {
        const next = adjustPace(pace, probe, random);
        expect(next).toMatchObject({ postsAtOnce: 1, backoff: i + 1, failures: i + 1 });
        expect(next.nextAt - probe.endedAt).toBe(Math.round(1000 * rung * (1 + 0.2 * random)));
      }
      pace = paceAfter(pace, probe);
    }
    expect(pace.failingSince).toBe(NOW + 100);
  });

  test("ends its backoff with the first successful probe, at one post at a time", () => {
    const closed = { ...NEW, backoff: 4, nextAt: NOW, failures: 9, failingSince: 1, slow: true };
    expect(paceAfter({ ...closed, slow: false }, OK)).toEqual(NEW);
    expect(paceAfter(closed, OK)).toEqual({ ...NEW, slow: true });
    expect(paceAfter(closed, SLOW_OK)).toEqual({ ...NEW, slow: true });
    expect(paceAfter(closed, OK, OK)).toEqual({ ...NEW, postsAtOnce: 2, slow: true });
  });

  test.each([
    ["as long as it asks", 0, 1.5 * FIRST, 1.5 * FIRST],
    ["at least the rung", 0, 0.3 * FIRST, FIRST],
    ["at most twice the rung", 0, 360 * FIRST, 2 * FIRST],
    ["twice a later rung", 3, 1e6, 2 * (RETRY_WAITS_SECONDS[3] ?? 0)],
  ])("backs off at once after a 429 or 503 that asks for a wait: %s", (_, rung, asked, waits) => {
    const pace = { ...NEW, postsAtOnce: rung === 0 ? 6 : 1, backoff: rung };
    const nextAt = NOW + 100 + 1000 * waits;
    for (const status of [429, 503])
      expect(paceAfter(pace, took(answered(status, asked)))).toEqual({
        ...{ ...NEW, ...FAILED_ONCE, backoff: rung + 1, nextAt },
      });
  });

  test.each([
    ...[429, 503].flatMap((status) => [answered(status), answered(status, 0)]),
    ...[400, 500, 502].map((status) => answered(status, 60)),
  ])("does not back off if nothing asks for a wait: %j", (outcome) => {
    const halved = { postsAtOnce: 3, backoff: 0, nextAt: 0 };
    expect(paceAfter({ ...NEW, postsAtOnce: 6 }, took(outcome))).toMatchObject(halved);
  });

  test("ignores posts already in progress when the backoff began: their failures only count", () => {
    const closed = { ...NEW, backoff: 1, nextAt: NOW + 1, failures: 1, failingSince: NOW - 1 };
    const late = took(answered(500), 5_000);
    expect(paceAfter(closed, late)).toEqual({ ...closed, slow: true, failures: 2 });
    expect(paceAfter(closed, took(answered(503, 60)))).toEqual({ ...closed, failures: 2 });
    expect(paceAfter(closed, OK)).toEqual({ ...closed, failures: 0, failingSince: null });
    // A probe never starts early.
    expect(paceAfter({ ...closed, nextAt: NOW }, FAILED)).toMatchObject({ backoff: 2 });
  });
});

describe("a kind of events that a subscription rejects", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const NEW: Pace = {
    ...{ postsAtOnce: 1, backoff: 0, nextAt: 0, slow: false },
    ...{ failures: 0, failingSince: null, rejections: {} },
  };
  const events: WebhookEvent[] = ["lead.created", "run.completed"];

  function paceOf(...posts: [type: WebhookEvent, at: number, status: number][]): Pace {
    return posts.reduce((pace, [type, at, status]) => {
      const times = { startedAt: NOW + at, endedAt: NOW + at };
      return adjustPace(pace, { type, outcome: answered(status), ...times }, NONE);
    }, NEW);
  }

  test("is known since its first failure, with its last answer, until one is accepted", () => {
    const rejections = (pace: Pace) => pace.rejections;
    const twice = paceOf(["run.completed", 0, 500], ["run.completed", 9, 400]);
    const rejected = { since: NOW, outcome: "answered", status: 400 };
    expect(rejections(twice)).toEqual({ "run.completed": rejected });
    const others = paceOf(["run.completed", 0, 400], ["lead.created", 5, 204]);
    expect(rejections(others)).toEqual({ "run.completed": rejected });
    expect(rejections(paceOf(["run.completed", 0, 400], ["run.completed", 5, 204]))).toEqual({});
  });

  test("is reported after a day, if others are accepted meanwhile and it is still listed", () => {
    const rejecting = paceOf(["run.completed", 0, 400], ["lead.created", 5, 204]);
    const kinds = (pace: Pace, at: number, listed = events) =>
      rejectedKinds({ ...pace, events: listed }, NOW + at);
    const reported = { type: "run.completed", since: NOW, outcome: "answered", status: 400 };
    expect(kinds(rejecting, TELL_AFTER_MS - 1)).toEqual([]);
    expect(kinds(rejecting, TELL_AFTER_MS)).toEqual([reported]);
    expect(kinds(rejecting, TELL_AFTER_MS, ["lead.created"])).toEqual([]);
    const dead = paceOf(["run.completed", 0, 400], ["lead.created", 5, 400]);
    expect(kinds(dead, TELL_AFTER_MS)).toEqual([]);
    const died = adjustPace(
      rejecting,
      { type: "lead.created", outcome: answered(500), startedAt: NOW + 9, endedAt: NOW + 9 },
      NONE,
    );
    expect(kinds(died, TELL_AFTER_MS + 9)).toEqual([reported]);
  });
});
