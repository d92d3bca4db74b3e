import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { PROBE_WAITS_SECONDS, RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { type Outcome, succeeded } from "../../../src/delivery/outcome.ts";
import {
  type Attempt,
  adjustPace,
  decide,
  endsOutage,
  FRESH,
  heldUntil,
  isExtra,
  laneOf,
  type Pace,
  type Post,
} from "../../../src/delivery/policy.ts";
import { answered } from "../../support/deliveries.ts";

/** The wait after attempt n. */
const LADDER = RETRY_WAITS_SECONDS.map((seconds, i) => [i + 1, seconds] as const);
const FIRST = RETRY_WAITS_SECONDS[0] as number;
const LAST_PROBE = PROBE_WAITS_SECONDS.at(-1) as number;
const LAST_ATTEMPT = LADDER.length + 1;
const EXHAUSTED = { state: "exhausted", waitMs: 0 } as const;
const wait = (seconds: number) => ({ state: "pending", waitMs: Math.round(seconds * 1000) });

/** No jitter: exactly the rung. */
const NONE = 0;

test("an attempt succeeds with any 2xx, at any attempt, even if it has a Retry-After", () => {
  for (let status = 200; status < 300; status++)
    for (const attempt of [1, 5, LAST_ATTEMPT])
      expect(decide(answered(status, 600), attempt, NONE)).toEqual({
        state: "delivered",
        waitMs: 0,
      });
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

test.each(LADDER)("wait %i grows by up to 20%, or as Retry-After asks up to twice", (n, rung) => {
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

const NOW = Date.UTC(2026, 0, 5, 12);
let events = 0;

/** An attempt that started at `NOW` and took this long, by default the first at another event. */
function took(outcome: Outcome, durationMs = 100, about: Partial<Post> = {}): Attempt {
  const delivery: Post = {
    ...{ eventId: `evt_${++events}`, type: "lead.created", priority: 0, attempts: 0 },
    ...{ dueAt: NOW, turnAt: null, ...about },
  };
  return { delivery, outcome, startedAt: NOW, endedAt: NOW + durationMs };
}

/** The same attempt at a later time. */
function at(startedAt: number, attempt: Attempt): Attempt {
  return { ...attempt, startedAt, endedAt: startedAt + attempt.endedAt - attempt.startedAt };
}

/** The pace after a series of attempts. */
function paceAfter(pace: Pace, ...attempts: Attempt[]): Pace {
  return attempts.reduce((before, attempt) => adjustPace(before, attempt, NONE), pace);
}

const ok = () => took(answered(200));
const rejected = (about: Partial<Post> = {}) => took(answered(400), 100, about);
const AWAY: Outcome[] = [
  { kind: "unreachable", status: null },
  { kind: "timed_out" },
  { kind: "refused" },
  answered(429),
  answered(503),
];
const isAway = (outcome: Outcome) => took(outcome);

describe("the concurrent posts to a subscription", () => {
  test.each([
    [6, 3],
    [5, 2],
    [2, 1],
    [1, 1],
  ])("are halved from %i to %i by a slow success, or by a rejection", (postsAtOnce, halved) => {
    const pace = { ...FRESH, postsAtOnce };
    expect(paceAfter(pace, took(answered(200), 1_999)).slow).toBe(false);
    const slow = paceAfter(pace, took(answered(200), 2_000));
    expect(slow).toEqual({ ...FRESH, postsAtOnce: halved, slow: true });
    expect(paceAfter(pace, rejected())).toMatchObject({ postsAtOnce: halved, nextAt: 0 });
    // An event that fails again says nothing new.
    expect(paceAfter(pace, rejected({ attempts: 1 }))).toMatchObject({ postsAtOnce, backoff: 0 });
  });

  test("are in the slow lane after one slow answer, until fast successes have earned six again", () => {
    const slow = paceAfter({ ...FRESH, postsAtOnce: 6 }, took(answered(200), 2_000));
    expect(paceAfter(slow, rejected()).slow).toBe(true);
    expect(paceAfter(slow, ok(), ok())).toEqual({ ...FRESH, postsAtOnce: 5, slow: true });
    expect(paceAfter(slow, ok(), ok(), ok())).toEqual({ ...FRESH, postsAtOnce: 6 });
    expect(paceAfter(slow, ok(), took(answered(200), 2_000), ok(), ok()).slow).toBe(true);
    expect(laneOf(slow)).toBe("slow");
    expect(paceAfter(FRESH, took({ kind: "timed_out" }, 10_000)).slow).toBe(true);
  });
});

describe("an endpoint that is away", () => {
  test.each(AWAY)("is left alone at once, as long as its event: %j", (outcome) => {
    const pace = paceAfter({ ...FRESH, postsAtOnce: 6 }, isAway(outcome));
    expect(pace).toMatchObject({ postsAtOnce: 1, nextAt: NOW + 100 + 1000 * FIRST });
    expect(laneOf(pace)).toBe("slow");
    for (const type of ["lead.created", "run.completed"] as const) {
      expect(heldUntil(pace, { type, priority: 0 })).toBe(pace.nextAt);
      expect(heldUntil(pace, { type, priority: 1 })).toBe(0);
    }
  });

  test("waits longer each time that different events fail, by up to 20% more, half an hour at most", () => {
    let pace = paceAfter(FRESH, isAway({ kind: "timed_out" }));
    const first = PROBE_WAITS_SECONDS.indexOf(FIRST);
    for (const rung of [...PROBE_WAITS_SECONDS.slice(first + 1), LAST_PROBE, LAST_PROBE]) {
      const probe = at(pace.nextAt, isAway({ kind: "unreachable", status: null }));
      for (const random of [1, 0.5, 0]) {
        const waits = adjustPace(pace, probe, random).nextAt - probe.endedAt;
        expect(waits).toBe(1000 * Math.min(LAST_PROBE, rung * (1 + 0.2 * random)));
      }
      pace = paceAfter(pace, probe);
    }
  });

  test("does not wait longer because the same event fails again", () => {
    const about = { eventId: "evt_poison" };
    const once = paceAfter(FRESH, took({ kind: "timed_out" }, 10_000, about));
    const again = at(once.nextAt, took({ kind: "timed_out" }, 10_000, { ...about, attempts: 1 }));
    expect(paceAfter(once, again).nextAt - again.endedAt).toBe(1000 * FIRST);
  });

  test("is well again with the first success, at one post at a time", () => {
    const away = paceAfter(FRESH, took({ kind: "timed_out" }, 10_000), isAway(answered(503)));
    const well = paceAfter(away, at(away.nextAt, ok()));
    expect(well).toEqual({ ...FRESH, slow: true });
    // One that answers, if only to reject, is no longer away.
    expect(paceAfter(away, at(away.nextAt, rejected()))).toMatchObject({ nextAt: 0 });
  });

  test("was already waiting when late answers come: their failures only count", () => {
    const waits = { ...FRESH, backoff: 5, nextAt: NOW + 1, failures: 1, failingSince: NOW - 1 };
    const unchanged = { backoff: 5, nextAt: NOW + 1, postsAtOnce: 1 };
    expect(paceAfter(waits, rejected())).toMatchObject({ ...unchanged, failures: 2 });
    expect(paceAfter(waits, isAway(answered(503, 60)))).toMatchObject(unchanged);
    expect(paceAfter(waits, ok())).toMatchObject({ ...unchanged, failures: 0, failingSince: null });
    expect(paceAfter({ ...waits, nextAt: NOW }, ok())).toEqual(FRESH);
  });
});

describe("an endpoint that rejects events at once", () => {
  test("waits longer with each different one in a row, for the kinds that it rejects", () => {
    let pace = FRESH;
    for (const [i, rung] of [...PROBE_WAITS_SECONDS, LAST_PROBE].entries()) {
      const post = at(Math.max(NOW, pace.rejectedUntil), rejected());
      pace = paceAfter(pace, post);
      expect(pace).toMatchObject({ nextAt: 0, postsAtOnce: 1, failures: i + 1 });
      expect(pace.rejectedUntil).toBe(rung === 0 ? 0 : post.endedAt + 1000 * rung);
    }
    expect(heldUntil(pace, { type: "lead.created", priority: 0 })).toBe(pace.rejectedUntil);
    expect(heldUntil(pace, { type: "run.completed", priority: 0 })).toBe(0);
    expect(laneOf(pace)).toBe("fast");
  });

  test("waits no longer because what it rejected is tried again", () => {
    const once = paceAfter(FRESH, rejected(), rejected());
    const again = at(once.rejectedUntil, rejected({ attempts: 1 }));
    expect(paceAfter(once, again).rejectedUntil - again.endedAt).toBe(1_000);
    const alone = paceAfter(FRESH, rejected({ eventId: "evt_1" }));
    const retries = Array(9).fill(rejected({ eventId: "evt_1", attempts: 1 }));
    expect(paceAfter(alone, ...retries)).toMatchObject({ backoff: 1, rejectedUntil: 0 });
  });

  test("is well again once it accepts any event", () => {
    const rejecting = paceAfter(FRESH, rejected({ type: "run.completed" }), rejected(), rejected());
    const well = paceAfter(
      rejecting,
      took(answered(200), 100, { type: "automation.status_changed" }),
    );
    const kinds = ["run.completed", "lead.created"];
    expect(well).toMatchObject({ backoff: 0, rejectedUntil: 0, failures: 0, failedEvents: [] });
    expect(Object.keys(well.rejections)).toEqual(kinds);
  });
});

test.each([
  ["of an event at its turn", { attempts: 2 }, false],
  ["sent by hand before its turn", { attempts: 2, priority: 1, turnAt: NOW + 1 }, true],
  ["sent by hand when it was its turn", { attempts: 2, priority: 1, turnAt: NOW }, false],
  ["that probes its endpoint before its turn", { attempts: 2, dueAt: NOW + 1 }, true],
  ["that is the first", { attempts: 0, priority: 1, turnAt: NOW + 1 }, false],
] as const)("an attempt %s counts or not: %j", (_, about, expected) => {
  expect(isExtra(took(answered(500), 100, about))).toBe(expected);
});

test.each([
  ["once it has recovered from being away", { backoff: 7, nextAt: 1 }, ok(), true],
  ["not after a short wait", { backoff: 6, nextAt: 1 }, ok(), false],
  ["not while it fails", { backoff: 7, nextAt: 1 }, rejected(), false],
  ["once it accepts what it rejected", { backoff: 7, rejectedUntil: 1 }, ok(), true],
  [
    "not if it accepts others",
    { backoff: 7, rejectedUntil: 1 },
    took(answered(200), 100, { type: "run.completed" }),
    false,
  ],
])("an outage has ended %s", (_, about, attempt, expected) => {
  const rejections = { "lead.created": { since: 1, outcome: "answered", status: 500 } };
  const before = { ...FRESH, rejections, ...about };
  expect(endsOutage(before, paceAfter(before, attempt))).toBe(expected);
});

describe("a kind of events that a subscription rejects", () => {
  function paceOf(...posts: [type: WebhookEvent, at: number, status: number][]): Pace {
    const attempts = posts.map(([type, ms, status]) =>
      at(NOW + ms, took(answered(status), 0, { type })),
    );
    return paceAfter(FRESH, ...attempts);
  }

  test("is known since its first failure, with its last answer, until one is accepted", () => {
    const twice = paceOf(["run.completed", 0, 500], ["run.completed", 9, 400]);
    const rejection = { since: NOW, outcome: "answered", status: 400 };
    expect(twice.rejections).toEqual({ "run.completed": rejection });
    const others = paceOf(["run.completed", 0, 400], ["lead.created", 5, 204]);
    expect(others.rejections).toEqual({ "run.completed": rejection });
    expect(paceOf(["run.completed", 0, 400], ["run.completed", 5, 204]).rejections).toEqual({});
  });
});
