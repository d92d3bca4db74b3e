import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import {
  CIRCUIT_OPENS_AFTER_EVENTS,
  CIRCUIT_OUTAGE_SECONDS,
  CIRCUIT_REJECTED_SECONDS,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  TRIED_FOR_MAX_MS,
} from "../../../src/contract/limits.ts";
import { HOUR_MS } from "../../../src/contract/time.ts";
import { PRIORITY } from "../../../src/db/schema.ts";
import type { AttemptOutcome, Outcome } from "../../../src/delivery/policy.ts";
import {
  afterAttempt,
  chooseProbe,
  type Decision,
  INITIAL_STATE,
  isOpen,
  mustDisable,
  NOT_ATTEMPTED_OPEN_MS,
  type PendingDelivery,
  type SendingState,
  SLOW_RESPONSE_MS,
} from "../../../src/delivery/policy.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const LEAD: WebhookEvent = "lead.created";
const RUN: WebhookEvent = "run.completed";

const answered = (status: number, retryAfterSeconds: number | null = null): Outcome => ({
  kind: "answered",
  status,
  retryAfterSeconds,
});
const OK = answered(200);
const REJECTED = answered(400);
const BUSY = answered(503);
const TIMED_OUT: Outcome = { kind: "timed_out" };

/** The outcome of an attempt; null if no request could be made. */
type Result = AttemptOutcome | null;

let events = 0;

function delivery(more: Partial<PendingDelivery> = {}): PendingDelivery {
  const untried = { priority: PRIORITY.untried, stepsUsed: 0, attemptsMade: 0, firstAt: null };
  return { eventId: `evt_${++events}`, type: LEAD, ...untried, dueAt: NOW, ...more };
}

/** A delivery that has failed before, since an hour ago. */
const retried = (more: Partial<PendingDelivery> = {}) =>
  delivery({ priority: PRIORITY.retry, stepsUsed: 1, firstAt: NOW - 3_600_000, ...more });

/** The consequences of an attempt, by default the first one at an event, which takes 20 ms. */
function outcomeOf(
  state: SendingState,
  outcome: Result,
  {
    of = delivery(),
    at = NOW,
    tookMs = 20,
    startedClosed = !isOpen(state, of.type),
    random = 0,
  } = {},
): Decision {
  const attempt = { delivery: of, outcome, startedAt: at, endedAt: at + tookMs, startedClosed };
  return afterAttempt(state, attempt, random);
}

/** The state after first attempts at different events, each as soon as its circuit admits it. */
function stateAfter(results: Result[], from: SendingState = INITIAL_STATE): SendingState {
  return results.reduce(
    (state, result) =>
      outcomeOf(state, result, { at: Math.max(NOW, state.circuits[LEAD]?.probeAt ?? 0) }).state,
    from,
  );
}

const times = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);

/** How long the circuit of leads is open after the last of these attempts, in seconds; 0 if it is closed. */
function secondsOpen(results: Result[]): number {
  const before = stateAfter(results.slice(0, -1));
  const at = Math.max(NOW, before.circuits[LEAD]?.probeAt ?? 0);
  const { state } = outcomeOf(before, results.at(-1) ?? null, { at });
  const { probeAt = 0 } = state.circuits[LEAD] ?? {};
  return probeAt === 0 ? 0 : (probeAt - at - 20) / 1000;
}

const OPEN_BY_REJECTIONS = stateAfter(times(CIRCUIT_OPENS_AFTER_EVENTS, REJECTED));
const OPEN_BY_OUTAGE = stateAfter([BUSY]);

describe("an outcome", () => {
  test.each([200, 201, 204, 299])("of %i delivers", (status) => {
    expect(outcomeOf(INITIAL_STATE, answered(status)).delivery.state).toBe("delivered");
  });

  test.each<Result>([
    ...[199, 301, 400, 410, 429, 500, 503].map((status) => answered(status)),
    TIMED_OUT,
    { kind: "unreachable", status: null },
    { kind: "unreachable", status: 526 },
    { kind: "refused" },
  ])("of %j does not deliver", (outcome) => {
    expect(outcomeOf(INITIAL_STATE, outcome).delivery).toMatchObject({
      state: "pending",
      priority: PRIORITY.retry,
      firstAt: NOW,
      settledAt: null,
    });
  });
});

describe("the retry schedule of a delivery", () => {
  test.each(RETRY_WAITS_SECONDS.map((seconds, i) => [i + 1, seconds] as const))(
    "is moved by rejection %i: %i s, and up to 20 per cent more",
    (stepsUsed, seconds) => {
      const of = retried({ stepsUsed: stepsUsed - 1 });
      for (const random of [0, 1]) {
        const { delivery } = outcomeOf(INITIAL_STATE, REJECTED, { of, random });
        const dueAt = NOW + 20 + seconds * 1000 * (1 + RETRY_JITTER * random);
        const { firstAt } = of;
        expect(delivery).toMatchObject({ state: "pending", stepsUsed, firstAt, dueAt });
      }
    },
  );

  test("ends with the rejection of the last attempt", () => {
    const last = RETRY_WAITS_SECONDS.length;
    const at = (stepsUsed: number) =>
      outcomeOf(INITIAL_STATE, REJECTED, { of: retried({ stepsUsed }) }).delivery;
    expect(at(last - 1)).toMatchObject({ state: "pending" });
    expect(at(last)).toMatchObject({ state: "exhausted", settledAt: NOW + 20 });
  });

  test.each([REJECTED, BUSY, { kind: "unreadable" }] as Result[])(
    "ends with a failure 84 hours after the first attempt: %j",
    (result) => {
      const stateAt = (triedForMs: number) =>
        outcomeOf(INITIAL_STATE, result, { of: retried({ firstAt: NOW + 20 - triedForMs }) })
          .delivery.state;
      expect(stateAt(TRIED_FOR_MAX_MS - 1)).toBe("pending");
      expect(stateAt(TRIED_FOR_MAX_MS)).toBe("exhausted");
    },
  );

  test.each([
    ["an outage, at a closed circuit", INITIAL_STATE, BUSY],
    ["an outage, at an open circuit", OPEN_BY_OUTAGE, TIMED_OUT],
    ["a rejection, at an open circuit", OPEN_BY_REJECTIONS, REJECTED],
  ])("is not moved by %s: it stays due", (_, state, outcome) => {
    const { delivery } = outcomeOf(state, outcome, { of: retried({ stepsUsed: 3 }) });
    expect(delivery).toMatchObject({ state: "pending", stepsUsed: 3, dueAt: NOW + 20 });
  });

  test("is not moved by the rejection that opens the circuit", () => {
    const almost = stateAfter(times(CIRCUIT_OPENS_AFTER_EVENTS - 1, REJECTED));
    expect(outcomeOf(almost, REJECTED).delivery).toMatchObject({ stepsUsed: 0, dueAt: NOW + 20 });
  });

  test("is moved by an event that cannot be read, which says nothing about the endpoint", () => {
    const { state, delivery } = outcomeOf(
      OPEN_BY_OUTAGE,
      { kind: "unreadable" },
      { of: retried() },
    );
    expect(delivery).toMatchObject({ stepsUsed: 2, dueAt: NOW + 20 + 60_000 });
    expect(state).toBe(OPEN_BY_OUTAGE);
  });
});

describe("the circuit of an event type", () => {
  test("opens with the fifth event that is rejected at its first attempt", () => {
    const opens = [1, 2, 3, 4, 5].map((count) => secondsOpen(times(count, REJECTED)));
    expect(opens).toEqual([0, 0, 0, 0, 1]);
  });

  test("stays closed however often the same events are rejected", () => {
    const of = retried();
    const state = times(20, REJECTED).reduce(
      (before, result) => outcomeOf(before, result, { of }).state,
      stateAfter(times(CIRCUIT_OPENS_AFTER_EVENTS - 1, REJECTED)),
    );
    expect(isOpen(state, LEAD)).toBe(false);
  });

  test.each([BUSY, answered(429), TIMED_OUT, { kind: "refused" } as const])(
    "opens with the first outage, even of a retry: %j",
    (outcome) => {
      expect(isOpen(outcomeOf(INITIAL_STATE, outcome, { of: retried() }).state, LEAD)).toBe(true);
    },
  );

  test("stays open for longer with each failed probe", () => {
    const seconds = (outcome: Outcome, first: number, count: number) =>
      Array.from({ length: count }, (_, i) => secondsOpen(times(first + i, outcome)));
    expect(seconds(REJECTED, CIRCUIT_OPENS_AFTER_EVENTS, 15)).toEqual([
      ...CIRCUIT_REJECTED_SECONDS,
      60,
    ]);
    expect(seconds(BUSY, 1, 9)).toEqual([...CIRCUIT_OUTAGE_SECONDS, 300]);
  });

  test.each([
    [1_799, 1_799],
    [RETRY_AFTER_MAX_SECONDS + 1, RETRY_AFTER_MAX_SECONDS],
    [0, 1],
    [null, 1],
  ])("with Retry-After of %j s stays open for %i s", (asked, seconds) => {
    for (const status of [429, 503]) expect(secondsOpen([answered(status, asked)])).toBe(seconds);
    expect(secondsOpen(times(CIRCUIT_OPENS_AFTER_EVENTS, answered(500, asked)))).toBe(1);
  });

  test("closes with a success, and what was first rejected since the last one is due at once", () => {
    const rejected = OPEN_BY_REJECTIONS.circuits[LEAD]?.rejected;
    const { state, dueNow } = outcomeOf(OPEN_BY_REJECTIONS, OK);
    expect(rejected).toHaveLength(CIRCUIT_OPENS_AFTER_EVENTS);
    expect(dueNow).toEqual(rejected);
    expect(state.circuits).toEqual({});
    expect(outcomeOf(state, OK).dueNow).toEqual([]);
  });

  test("lists no event whose first attempt met an outage, was a probe, or belongs to a replay", () => {
    const replay = delivery({ priority: PRIORITY.replay });
    expect(OPEN_BY_OUTAGE.circuits[LEAD]?.rejected).toEqual([]);
    const probed = outcomeOf(OPEN_BY_REJECTIONS, REJECTED).state;
    expect(probed.circuits[LEAD]?.rejected).toHaveLength(CIRCUIT_OPENS_AFTER_EVENTS);
    const replayed = outcomeOf(INITIAL_STATE, REJECTED, { of: replay }).state;
    expect(replayed.circuits[LEAD]?.rejected).toEqual([]);
  });

  test("leaves the other event types alone, and is left alone by them", () => {
    const others = outcomeOf(OPEN_BY_OUTAGE, REJECTED, { of: delivery({ type: RUN }) }).state;
    expect(others.circuits[LEAD]).toEqual(OPEN_BY_OUTAGE.circuits[LEAD]);
    expect(isOpen(others, RUN)).toBe(false);
    const { state, dueNow } = outcomeOf(others, OK, { of: delivery({ type: RUN }) });
    expect(Object.keys(state.circuits)).toEqual([LEAD]);
    expect(dueNow).toHaveLength(1);
  });

  test("is neither closed nor lengthened by an attempt that started before it opened", () => {
    const { probeAt } = OPEN_BY_OUTAGE.circuits[LEAD] ?? {};
    const early = (result: Result) => outcomeOf(OPEN_BY_OUTAGE, result, { startedClosed: true });
    expect(early(OK).state).toMatchObject({ circuits: OPEN_BY_OUTAGE.circuits, failures: 0 });
    expect(early(OK).dueNow).toEqual([]);
    expect(early(BUSY).state.circuits[LEAD]).toMatchObject({ probeAt, step: 1 });
    expect(early(answered(503, 900)).state.circuits[LEAD]).toMatchObject({
      probeAt: NOW + 20 + 900_000,
      step: 1,
    });
  });

  test("is closed by a resend that succeeds while it is open", () => {
    const of = delivery({ priority: PRIORITY.resend });
    expect(outcomeOf(OPEN_BY_OUTAGE, OK, { of }).state.circuits).toEqual({});
  });

  test("opens for five minutes if an attempt could not be made, which counts as none", () => {
    const of = retried({ stepsUsed: 3 });
    const { state, delivery } = outcomeOf(INITIAL_STATE, null, { of });
    expect(state.circuits[LEAD]).toMatchObject({
      probeAt: NOW + 20 + NOT_ATTEMPTED_OPEN_MS,
      outcome: null,
    });
    expect(state).toMatchObject({ failures: 0, failingSince: null });
    const { eventId, type, attemptsMade, ...unchanged } = of;
    expect(delivery).toEqual({ ...unchanged, state: "pending", settledAt: null });
    const asked = stateAfter([answered(503, RETRY_AFTER_MAX_SECONDS)]);
    const again = outcomeOf(asked, null).state;
    expect(again.circuits).toEqual(asked.circuits);
  });

  test("has since when it fails, though no attempt could be made before", () => {
    const { state } = outcomeOf(INITIAL_STATE, null);
    const startedAt = NOW + 90_000_000;
    const failed = outcomeOf(state, REJECTED, { at: startedAt }).state;
    expect(failed.circuits[LEAD]).toMatchObject({ since: startedAt, status: 400 });
  });

  test("that an error of ours has opened is ended by any response, and a rejection moves the schedule", () => {
    const { state } = outcomeOf(INITIAL_STATE, null);
    const rejected = outcomeOf(state, REJECTED, { at: NOW + HOUR_MS });
    expect(isOpen(rejected.state, LEAD)).toBe(false);
    expect(rejected.delivery).toMatchObject({ stepsUsed: 1 });
    // An outage opens it as if it had been closed, and a rejection of a probe leaves that open.
    const busy = outcomeOf(state, BUSY, { at: NOW + HOUR_MS }).state;
    expect(busy.circuits).toEqual(
      outcomeOf(INITIAL_STATE, BUSY, { at: NOW + HOUR_MS }).state.circuits,
    );
    expect(isOpen(outcomeOf(busy, REJECTED, { at: NOW + 2 * HOUR_MS }).state, LEAD)).toBe(true);
  });
});

describe("an attempt that could not be made", () => {
  test.each([
    ["holds a resend like any other", PRIORITY.resend, PRIORITY.retry],
    ["leaves a replay in its place, so that it can be stopped", PRIORITY.replay, PRIORITY.replay],
  ])("%s", (_, priority, expected) => {
    const of = delivery({ priority });
    const { delivery: after } = outcomeOf(INITIAL_STATE, null, { of });
    expect(after).toMatchObject({ state: "pending", priority: expected, dueAt: NOW });
  });
});

test("a replay opens the circuit if it meets an outage, and counts as a failure", () => {
  const replay = delivery({ priority: PRIORITY.replay });
  const { state } = outcomeOf(INITIAL_STATE, BUSY, { of: replay });
  expect(isOpen(state, LEAD)).toBe(true);
  expect(state).toMatchObject({ failingSince: NOW, failures: 1 });
});

describe("a resend that fails", () => {
  const { resend } = PRIORITY;

  test("changes no circuit and no count", () => {
    for (const before of [INITIAL_STATE, OPEN_BY_REJECTIONS])
      for (const outcome of [REJECTED, BUSY]) {
        const { state } = outcomeOf(before, outcome, { of: delivery({ priority: resend }) });
        const { circuits, failingSince, failures } = before;
        expect(state).toMatchObject({ circuits, failingSince, failures });
      }
  });

  test("makes its delivery one like any other, with a new schedule", () => {
    const of = delivery({ priority: resend, attemptsMade: 7 });
    for (const outcome of [REJECTED, BUSY]) {
      expect(outcomeOf(INITIAL_STATE, outcome, { of }).delivery).toMatchObject({
        priority: PRIORITY.retry,
        stepsUsed: 1,
        dueAt: NOW + 20 + 10_000,
      });
      expect(outcomeOf(OPEN_BY_OUTAGE, outcome, { of }).delivery).toMatchObject({
        priority: PRIORITY.retry,
        stepsUsed: 0,
        dueAt: NOW + 20,
      });
    }
  });

  test("is held like any other if it could not be made", () => {
    const of = delivery({ priority: resend });
    expect(outcomeOf(INITIAL_STATE, null, { of }).delivery.priority).toBe(PRIORITY.retry);
  });
});

describe("adaptive concurrency", () => {
  const at = (concurrency: number) => ({ ...INITIAL_STATE, concurrency });

  test("starts at one and grows by one with each fast success, up to six", () => {
    const grown = Array.from({ length: 7 }, (_, i) => stateAfter(times(i, OK)).concurrency);
    expect(grown).toEqual([1, 2, 3, 4, 5, 6, 6]);
  });

  test.each<[string, Result, number, number]>([
    ["429", answered(429), 20, 3],
    ["503", BUSY, 20, 3],
    ["a time-out", TIMED_OUT, 10_000, 3],
    ["a slow success", OK, SLOW_RESPONSE_MS, 3],
    ["a slow rejection", REJECTED, SLOW_RESPONSE_MS, 3],
    ["a fast rejection", REJECTED, SLOW_RESPONSE_MS - 1, 6],
    ["a refused connection", { kind: "unreachable", status: null }, 20, 6],
  ])("after %s", (_, outcome, tookMs, expected) => {
    expect(outcomeOf(at(6), outcome, { tookMs }).state.concurrency).toBe(expected);
    expect(outcomeOf(at(1), outcome, { tookMs }).state.concurrency).toBe(1);
  });
});

describe("the slow queue", () => {
  const slowAfter = (state: SendingState, outcome: Outcome, tookMs = 20) =>
    outcomeOf(state, outcome, { tookMs }).state.slow;

  test("takes an endpoint that is slow or unavailable", () => {
    for (const outcome of [OK, REJECTED, BUSY]) {
      expect(slowAfter(INITIAL_STATE, outcome, SLOW_RESPONSE_MS)).toBe(true);
      expect(slowAfter(INITIAL_STATE, outcome, SLOW_RESPONSE_MS - 1)).toBe(false);
    }
    expect(slowAfter(INITIAL_STATE, { kind: "unreachable", status: 526 })).toBe(true);
  });

  test("keeps it until a fast success at full concurrency", () => {
    const slow = { ...INITIAL_STATE, slow: true };
    expect(slowAfter({ ...slow, concurrency: 4 }, OK)).toBe(true);
    expect(slowAfter({ ...slow, concurrency: 5 }, REJECTED)).toBe(true);
    expect(slowAfter({ ...slow, concurrency: 5 }, OK)).toBe(false);
  });
});

describe("failing", () => {
  test("begins with the first failure that started, and ends with a success of any type", () => {
    const first = outcomeOf(INITIAL_STATE, REJECTED, { at: NOW }).state;
    const second = outcomeOf(first, BUSY, { at: NOW - 5 }).state;
    expect(second).toMatchObject({ failingSince: NOW - 5, failures: 2 });
    const success = outcomeOf(second, OK, { of: delivery({ type: RUN }) }).state;
    expect(success).toMatchObject({ failingSince: null, failures: 0 });
    expect(Object.keys(success.circuits)).toEqual([LEAD]);
  });

  test("has since when an event type fails, and how it failed last", () => {
    const first = outcomeOf(INITIAL_STATE, REJECTED, { at: NOW }).state;
    const second = outcomeOf(first, TIMED_OUT, { at: NOW + 9 }).state;
    expect(first.circuits[LEAD]).toMatchObject({ since: NOW, outcome: "answered", status: 400 });
    expect(second.circuits[LEAD]).toMatchObject({ since: NOW, outcome: "timed_out", status: null });
  });
});

describe("a subscription is disabled", () => {
  const failing = (forMs: number, failures: number) => ({
    ...INITIAL_STATE,
    failingSince: NOW - forMs,
    failures,
  });

  test.each([
    ["after 72 hours without a success and ten failed attempts", 0, 0, true],
    ["not before 72 hours", -1, 0, false],
    ["not with nine failed attempts", 0, -1, false],
  ])("%s", (_, laterMs, more, expected) => {
    const state = failing(DISABLE_AFTER_MS + laterMs, DISABLE_AFTER_FAILURES + more);
    expect(mustDisable(INITIAL_STATE, state, NOW)).toBe(expected);
  });
});

describe("a probe", () => {
  const untried = [delivery(), delivery(), delivery()];
  const retry = retried();
  const replay = delivery({ priority: PRIORITY.replay });

  test("is the oldest or the newest event that was not tried yet, at random", () => {
    const heads = [replay, ...untried, retry];
    expect(chooseProbe(heads, 0.49)).toBe(untried[2]);
    expect(chooseProbe(heads, 0.5)).toBe(untried[0]);
  });

  test("is a retry if all were tried, and a replay only if there is no retry", () => {
    expect(chooseProbe([replay, retry, retried()], 0)).toBe(retry);
    expect(chooseProbe([replay], 0)).toBe(replay);
    expect(chooseProbe([], 0)).toBeUndefined();
  });
});
