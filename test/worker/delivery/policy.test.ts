import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  FAILING_SPACING_SECONDS,
  OUTAGE_SPACING_SECONDS,
  PROBE_INTERVAL_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SPACED_FROM_EVENTS,
} from "../../../src/contract/limits.ts";
import { PRIORITY, type Priority } from "../../../src/db/schema.ts";
import { type AttemptOutcome, type Outcome, succeeded } from "../../../src/delivery/outcome.ts";
import {
  type Attempt,
  adjustPace,
  chooseNext,
  INITIAL_PACE,
  INITIAL_TYPE_OUTCOMES,
  isDead,
  NEVER,
  noteTypeOutcome,
  type Pace,
  type PendingDelivery,
  queueOf,
  reschedule,
  SLOW_RESPONSE_MS,
  type TypeOutcomes,
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

let events = 0;

function delivery(more: Partial<PendingDelivery> = {}): PendingDelivery {
  return {
    eventId: `evt_${++events}`,
    type: LEAD,
    priority: PRIORITY.untried,
    attempts: 0,
    attemptsMade: 0,
    dueAt: NOW,
    scheduledAt: null,
    lastAt: null,
    ...more,
  };
}

function attempt<O extends AttemptOutcome>(
  outcome: O,
  {
    at = NOW,
    tookMs = 20,
    of = delivery(),
    startedWhileBlocked = false,
  }: { at?: number; tookMs?: number; of?: PendingDelivery; startedWhileBlocked?: boolean } = {},
): Attempt<O> {
  return { delivery: of, outcome, startedAt: at, startedWhileBlocked, endedAt: at + tookMs };
}

/** The pace after attempts at different events, each as soon as it may start. */
function paceAfter(outcomes: Outcome[], from: Pace = INITIAL_PACE): Pace {
  return outcomes.reduce(
    (pace, outcome) => adjustPace(pace, attempt(outcome, { at: Math.max(NOW, pace.blockedUntil) })),
    from,
  );
}

const times = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);

/** Seconds from the end of the attempt that set the pace until the next request may start. */
const spacings = (outcomes: Outcome[]): number[] => {
  let pace = INITIAL_PACE;
  return outcomes.map((outcome) => {
    const one = attempt(outcome, { at: Math.max(NOW, pace.blockedUntil) });
    pace = adjustPace(pace, one);
    return pace.blockedUntil === 0 ? 0 : (pace.blockedUntil - one.endedAt) / 1000;
  });
};

describe("an outcome", () => {
  test.each([200, 201, 204, 299])("%i is a success", (status) => {
    expect(succeeded(answered(status))).toBe(true);
  });

  test.each<AttemptOutcome>([
    answered(199),
    answered(300),
    answered(404),
    answered(500),
    TIMED_OUT,
    { kind: "unreachable", status: 522 },
    { kind: "refused" },
    { kind: "unreadable" },
  ])("%j is a failure", (outcome) => {
    expect(succeeded(outcome)).toBe(false);
  });
});

describe("the retry schedule", () => {
  test.each(RETRY_WAITS_SECONDS.map((seconds, i) => [i + 1, seconds] as const))(
    "makes a delivery due again after attempt %i in %i s, plus jitter",
    (n, seconds) => {
      const of = delivery({ attempts: n - 1 });
      const failed = attempt(REJECTED, { of });
      const first = { state: "pending", attempts: n };
      expect(reschedule(INITIAL_PACE, failed, 0)).toMatchObject({
        ...first,
        dueAt: failed.endedAt + seconds * 1000,
      });
      expect(reschedule(INITIAL_PACE, failed, 1)).toMatchObject({
        ...first,
        dueAt: failed.endedAt + seconds * 1000 * (1 + RETRY_JITTER),
      });
    },
  );

  test("exhausts a delivery after the last attempt", () => {
    const of = delivery({ attempts: RETRY_WAITS_SECONDS.length });
    expect(reschedule(INITIAL_PACE, attempt(REJECTED, { of }), 0).state).toBe("exhausted");
  });

  test("delivers a delivery at any attempt that succeeds", () => {
    const of = delivery({ attempts: RETRY_WAITS_SECONDS.length, priority: PRIORITY.scheduled });
    expect(reschedule(INITIAL_PACE, attempt(OK, { of }), 0)).toMatchObject({ state: "delivered" });
  });

  test("does not count a failure before its time", () => {
    const dueAt = NOW + 3_600_000;
    const of = delivery({ attempts: 4, priority: PRIORITY.inStreak, dueAt });
    expect(reschedule(INITIAL_PACE, attempt(BUSY, { of }), 0)).toMatchObject({
      attempts: 4,
      dueAt,
    });
  });

  test("goes on after a manual send before its time that fails", () => {
    const scheduledAt = NOW + 3_600_000;
    const of = delivery({ attempts: 4, priority: PRIORITY.manual, scheduledAt });
    const rescheduled = reschedule(INITIAL_PACE, attempt(BUSY, { of }), 0);
    expect(rescheduled).toMatchObject({ attempts: 4, dueAt: scheduledAt });
  });

  test("counts the first attempt even if it is a manual send", () => {
    const of = delivery({ priority: PRIORITY.manual, scheduledAt: NOW + 3_600_000 });
    expect(reschedule(INITIAL_PACE, attempt(BUSY, { of }), 0)).toMatchObject({ attempts: 1 });
  });
});

describe("adaptive concurrency", () => {
  test("starts at one and grows by one with each success, up to six", () => {
    const grown = Array.from({ length: 8 }, (_, i) => paceAfter(times(i, OK)).concurrency);
    expect(grown).toEqual([1, 2, 3, 4, 5, 6, 6, 6]);
  });

  test("halves with a new event that fails", () => {
    expect(paceAfter([...times(5, OK), REJECTED]).concurrency).toBe(3);
  });

  test("is one at least", () => {
    expect(paceAfter([REJECTED]).concurrency).toBe(1);
  });

  test("stays as it is if an event fails again", () => {
    const of = delivery({ attempts: 1, priority: PRIORITY.scheduled, lastAt: NOW - 1 });
    expect(adjustPace(paceAfter(times(5, OK)), attempt(REJECTED, { of })).concurrency).toBe(6);
  });

  test("halves with a slow response", () => {
    const slow = attempt(OK, { tookMs: SLOW_RESPONSE_MS });
    expect(adjustPace(paceAfter(times(5, OK)), slow).concurrency).toBe(3);
  });

  test.each([BUSY, TIMED_OUT])("is one after %j", (outcome) => {
    expect(paceAfter([...times(5, OK), outcome]).concurrency).toBe(1);
  });

  test("is one after as many failures as make requests spaced", () => {
    const pace = { ...paceAfter(times(SPACED_FROM_EVENTS - 1, REJECTED)), concurrency: 6 };
    expect(adjustPace(pace, attempt(REJECTED)).concurrency).toBe(1);
  });

  test("is one after the first success of an endpoint that was spaced", () => {
    expect(paceAfter([TIMED_OUT, OK]).concurrency).toBe(1);
  });
});

describe("the slow queue", () => {
  test("takes a subscription after one slow response, until it has earned six requests again", () => {
    let pace = adjustPace(paceAfter(times(5, OK)), attempt(OK, { tookMs: SLOW_RESPONSE_MS }));
    const queues = [queueOf(pace)];
    for (let i = 0; i < 3; i++) {
      pace = paceAfter([OK], pace);
      queues.push(queueOf(pace));
    }
    expect(queues).toEqual(["slow", "slow", "slow", "fast"]);
  });

  test("takes an endpoint that is unavailable", () => {
    expect(queueOf(paceAfter([{ kind: "unreachable", status: null }]))).toBe("slow");
  });

  test("takes an endpoint that rejects an event after two seconds, and no sooner", () => {
    const rejectedAfter = (tookMs: number) =>
      queueOf(adjustPace(INITIAL_PACE, attempt(REJECTED, { tookMs })));
    expect([rejectedAfter(1_999), rejectedAfter(2_000)]).toEqual(["fast", "slow"]);
  });

  test("keeps a slow endpoint that rejects at once", () => {
    const slow = { ...INITIAL_PACE, slow: true };
    expect(queueOf(paceAfter([REJECTED], slow))).toBe("slow");
  });

  test("leaves alone an endpoint that accepts at once", () => {
    expect(queueOf(paceAfter([OK]))).toBe("fast");
  });

  test("leaves alone an endpoint that rejects at once", () => {
    expect(queueOf(paceAfter(times(20, REJECTED)))).toBe("fast");
  });
});

describe("spacing while an endpoint fails", () => {
  test("begins with the fifth different event that was rejected in a row", () => {
    const expected = [...times(SPACED_FROM_EVENTS - 1, 0), ...FAILING_SPACING_SECONDS, 60, 60];
    expect(spacings(times(expected.length, REJECTED))).toEqual(expected);
  });

  test.each([
    ["busy", BUSY],
    ["busy", answered(429)],
    ["unavailable", TIMED_OUT],
    ["unavailable", { kind: "unreachable", status: 521 } as const],
    ["unavailable", { kind: "refused" } as const],
  ] as const)("begins with the first event of an endpoint that is %s: %j", (failure, outcome) => {
    const expected = OUTAGE_SPACING_SECONDS[failure];
    expect(spacings(times(expected.length + 1, outcome))).toEqual([...expected, expected.at(-1)]);
  });

  test("is not lengthened by an event that fails again", () => {
    const of = delivery();
    const first = adjustPace(INITIAL_PACE, attempt(TIMED_OUT, { of }));
    const again = attempt(TIMED_OUT, {
      at: first.blockedUntil,
      of: { ...of, attempts: 1, priority: PRIORITY.inStreak, lastAt: NOW },
    });
    expect(adjustPace(first, again).blockedUntil - again.endedAt).toBe(1_000);
  });

  test("is not lengthened by requests that were in flight when it began", () => {
    const blocked = adjustPace(INITIAL_PACE, attempt(BUSY));
    const late = adjustPace(blocked, attempt(BUSY, { tookMs: 900 }));
    expect(late.blockedUntil).toBe(blocked.blockedUntil);
  });

  test("outlasts a success that was in flight when Retry-After was received", () => {
    const blocked = adjustPace(INITIAL_PACE, attempt(answered(429, 600)));
    const late = adjustPace(blocked, attempt(OK, { tookMs: 900 }));
    expect(late).toMatchObject({ streak: null, blockedUntil: blocked.blockedUntil });
    const next = adjustPace(late, attempt(OK, { at: late.blockedUntil }));
    expect(next.blockedUntil).toBe(0);
  });

  test("ends with a manual send that succeeds", () => {
    const blocked = adjustPace(INITIAL_PACE, attempt(answered(429, 600)));
    const of = delivery({ priority: PRIORITY.manual });
    const sent = attempt(OK, { of, startedWhileBlocked: true });
    expect(adjustPace(blocked, sent).blockedUntil).toBe(0);
  });

  test("outlasts a manual send that was in flight when Retry-After was received", () => {
    const blocked = adjustPace(INITIAL_PACE, attempt(answered(429, 600)));
    const of = delivery({ priority: PRIORITY.manual });
    const late = adjustPace(blocked, attempt(OK, { of, tookMs: 900 }));
    expect(late.blockedUntil).toBe(blocked.blockedUntil);
  });

  test("probes five minutes after the last failure in flight, not at once", () => {
    const blocked = adjustPace(INITIAL_PACE, attempt(BUSY));
    const accepted = adjustPace(blocked, attempt(OK, { tookMs: 200 }));
    const failed = attempt(REJECTED, { tookMs: 400 });
    const pace = adjustPace(accepted, failed);
    expect(pace.streakRetryAt).toBe(failed.endedAt + PROBE_INTERVAL_MS);
    const again = attempt(REJECTED, { tookMs: 500 });
    expect(adjustPace(pace, again).streakRetryAt).toBe(again.endedAt + PROBE_INTERVAL_MS);
  });

  test("is lengthened by Retry-After of requests that were in flight when it began", () => {
    const blocked = adjustPace(INITIAL_PACE, attempt(BUSY));
    const late = attempt(answered(429, 600), { tookMs: 900 });
    expect(adjustPace(blocked, late).blockedUntil).toBe(late.endedAt + 600_000);
    const rejected = attempt(answered(500, 600), { tookMs: 900 });
    expect(adjustPace(blocked, rejected).blockedUntil).toBe(blocked.blockedUntil);
  });

  test("is not lengthened by events that were rejected before an outage", () => {
    expect(spacings([REJECTED, REJECTED, BUSY])).toEqual([0, 0, OUTAGE_SPACING_SECONDS.busy[0]]);
  });

  test("begins with an outage even if its event was rejected before", () => {
    const of = delivery();
    const rejected = adjustPace(INITIAL_PACE, attempt(REJECTED, { of }));
    const again = { ...of, attempts: 1, priority: PRIORITY.inStreak, lastAt: NOW };
    expect(adjustPace(rejected, attempt(BUSY, { of: again })).streak?.outageStep).toBe(1);
  });

  test("stays as it is with an event that is rejected after an outage", () => {
    const busy = { ...adjustPace(INITIAL_PACE, attempt(BUSY)), concurrency: 6 };
    const rejected = adjustPace(busy, attempt(REJECTED, { at: busy.blockedUntil }));
    expect(rejected).toMatchObject({ concurrency: 1, blockedUntil: busy.blockedUntil });
  });

  test("counts requests that were in flight when it began as failures of the streak", () => {
    const late = adjustPace(adjustPace(INITIAL_PACE, attempt(BUSY)), attempt(BUSY));
    expect(late.streak).toMatchObject({ events: 2, attempts: 2, outageStep: 1 });
  });

  test("counts an event once, however often it fails", () => {
    const of = delivery();
    const first = adjustPace(INITIAL_PACE, attempt(REJECTED, { of }));
    const again = { ...of, attempts: 1, priority: PRIORITY.inStreak, lastAt: NOW };
    const second = adjustPace(first, attempt(REJECTED, { of: again, at: NOW + 10_000 }));
    expect(second.streak).toMatchObject({ events: 1, attempts: 2 });
  });

  test("has since when its endpoint is unavailable, until that responds", () => {
    const sinceAfter = (...outcomes: Outcome[]) => {
      const pace = outcomes.reduce(
        (before, outcome, i) => adjustPace(before, attempt(outcome, { at: NOW + i * 1_000 })),
        INITIAL_PACE,
      );
      return pace.streak?.unavailableSince;
    };
    expect(sinceAfter(REJECTED)).toBe(null);
    expect(sinceAfter(TIMED_OUT, { kind: "refused" })).toBe(NOW);
    expect(sinceAfter(REJECTED, TIMED_OUT, TIMED_OUT)).toBe(NOW + 1_000);
    expect(sinceAfter(TIMED_OUT, BUSY)).toBe(null);
    expect(sinceAfter(TIMED_OUT, REJECTED, TIMED_OUT)).toBe(NOW + 2_000);
  });

  test("counts from the first failure that started, whichever ended first", () => {
    const first = adjustPace(INITIAL_PACE, attempt(REJECTED));
    expect(paceAfter([REJECTED], first).streak?.startedAt).toBe(NOW);
    const earlier = attempt(REJECTED, { at: NOW - 900, tookMs: 1_000 });
    expect(adjustPace(first, earlier).streak?.startedAt).toBe(NOW - 900);
    const later = attempt(REJECTED, { at: NOW + 900 });
    expect(adjustPace(first, later).streak?.startedAt).toBe(NOW);
  });

  test("is as long as Retry-After asks for, up to half an hour", () => {
    expect(spacings([answered(503, 90)])).toEqual([90]);
    expect(spacings([answered(429, 999_999)])).toEqual([RETRY_AFTER_MAX_SECONDS]);
  });

  test("ignores Retry-After of an endpoint that is not busy", () => {
    expect(spacings([answered(500, 90)])).toEqual([0]);
  });

  test("ends with any success", () => {
    const pace = paceAfter([...times(30, REJECTED), OK]);
    expect(pace).toMatchObject({ streak: null, blockedUntil: 0 });
  });

  test("is not changed by a manual send that fails, other than by a move to the slow queue", () => {
    const pace = paceAfter(times(7, REJECTED));
    const of = delivery({ priority: PRIORITY.manual });
    expect(adjustPace(pace, attempt(REJECTED, { of, at: pace.blockedUntil }))).toEqual(pace);
    const hanging = attempt(TIMED_OUT, { of, at: pace.blockedUntil });
    const slow = { ...pace, slow: true };
    expect(adjustPace(pace, hanging)).toEqual(slow);
    expect(adjustPace(slow, attempt(REJECTED, { of, at: pace.blockedUntil }))).toEqual(slow);
  });

  test("tries what failed within the streak at least every five minutes", () => {
    const pace = paceAfter(times(5, REJECTED));
    expect(pace.streakRetryAt - pace.blockedUntil).toBe(PROBE_INTERVAL_MS - 1_000);
    const unavailable = paceAfter(times(9, TIMED_OUT));
    expect(unavailable.streakRetryAt).toBe(unavailable.blockedUntil);
  });
});

describe("the next delivery while requests are spaced", () => {
  const old = delivery({ dueAt: NOW - 5_000 });
  const young = delivery({ dueAt: NOW - 1_000 });
  const failed = delivery({
    dueAt: NOW - 9_000,
    priority: PRIORITY.inStreak,
    attempts: 1,
    lastAt: NOW - 9_500,
  });
  const run = delivery({ type: RUN, dueAt: NOW - 1_000 });
  type Spaced = Pace & Pick<TypeOutcomes, "rejections">;
  const spaced: Spaced = { ...INITIAL_PACE, blockedUntil: NOW, rejections: {} };

  const withTurns = (turns: NonNullable<Pace["streak"]>["turns"]): Spaced => ({
    ...spaced,
    streak: {
      startedAt: NOW - 60_000,
      events: 6,
      attempts: 6,
      outageStep: 0,
      unavailableSince: null,
      turns,
    },
  });

  test("is none before requests are allowed again", () => {
    expect(chooseNext({ ...spaced, blockedUntil: NOW + 1 }, [old, run], NOW)).toBeUndefined();
  });

  test("is a manual send, whatever the spacing", () => {
    const manual = delivery({ priority: PRIORITY.manual });
    const pace = { ...spaced, blockedUntil: NOW + 60_000 };
    expect(chooseNext(pace, [old, run, manual], NOW)).toBe(manual);
  });

  test("is a manual send before all else once requests are allowed", () => {
    const manual = delivery({ priority: PRIORITY.manual });
    expect(chooseNext(spaced, [old, run, manual], NOW)).toBe(manual);
  });

  test("is none if nothing is due", () => {
    expect(chooseNext(spaced, [], NOW)).toBeUndefined();
  });

  test.each([[[old, run]], [[run, old]]])("is of an event type that was not tried yet", (heads) => {
    const tried = withTurns({ [LEAD]: { at: NOW - 1, isOldestNext: false } });
    expect(chooseNext(tried, heads, NOW)).toBe(run);
  });

  test("is the oldest by its due time, and only then by its event's id", () => {
    const oldest = withTurns({ [LEAD]: { at: NOW, isOldestNext: true } });
    const earlier = delivery({ eventId: "evt_c", dueAt: NOW - 2 });
    const lower = delivery({ eventId: "evt_a", dueAt: NOW - 1 });
    const higher = delivery({ eventId: "evt_b", dueAt: NOW - 1 });
    for (const heads of [
      [earlier, lower],
      [lower, earlier],
    ])
      expect(chooseNext(oldest, heads, NOW)).toBe(earlier);
    for (const heads of [
      [lower, higher],
      [higher, lower],
    ])
      expect(chooseNext(oldest, heads, NOW)).toBe(lower);
  });

  test("is of the event type that was tried longest ago", () => {
    const turns = {
      [LEAD]: { at: NOW - 1, isOldestNext: false },
      [RUN]: { at: NOW - 2, isOldestNext: false },
    };
    expect(chooseNext(withTurns(turns), [old, young, failed, run], NOW)).toBe(run);
  });

  test("is of an event type that yields only if nothing of another type is due", () => {
    const turns = withTurns({ [RUN]: { at: NOW - 1, isOldestNext: false } });
    const until = (yieldsUntil: number) => ({
      since: NOW - 1,
      outcome: "answered",
      status: 400,
      yieldsUntil,
    });
    const yielding = { ...turns, rejections: { [LEAD]: until(NOW + 1) } };
    expect(chooseNext(yielding, [old, run], NOW)).toBe(run);
    expect(chooseNext(yielding, [old], NOW)).toBe(old);
    const yielded = { ...turns, rejections: { [LEAD]: until(NOW) } };
    expect(chooseNext(yielded, [old, run], NOW)).toBe(old);
    // Types that yield to each other take turns.
    const both = { ...turns, rejections: { [LEAD]: until(NOW + 1), [RUN]: until(NOW + 2) } };
    expect(chooseNext(both, [old, run], NOW)).toBe(old);
  });

  test("is in turn the newest and the oldest untried event of its type", () => {
    const heads = [failed, old, young];
    const next = (isOldestNext: boolean) =>
      chooseNext(withTurns({ [LEAD]: { at: NOW, isOldestNext } }), heads, NOW);
    expect([next(false), next(true)]).toEqual([young, old]);
  });

  test("is what failed before only if nothing of its type is untried", () => {
    expect(chooseNext(spaced, [failed], NOW)).toBe(failed);
  });

  test("alternates over attempts, for each event type by itself", () => {
    let pace: Pace = spaced;
    const isOldestNext: (boolean | undefined)[] = [];
    for (const type of [LEAD, RUN, LEAD, RUN]) {
      pace = adjustPace(pace, attempt(REJECTED, { at: pace.blockedUntil, of: delivery({ type }) }));
      isOldestNext.push(pace.streak?.turns[type]?.isOldestNext);
    }
    expect(isOldestNext).toEqual([true, true, false, false]);
  });

  test("is not moved on by a retry", () => {
    const retry = delivery({ attempts: 1, priority: PRIORITY.inStreak, lastAt: NOW - 1 });
    const { streak } = adjustPace(paceAfter([REJECTED]), attempt(REJECTED, { of: retry }));
    expect(streak?.turns[LEAD]).toEqual({ at: NOW, isOldestNext: true });
  });
});

describe("the end of a streak", () => {
  const priorityAfter = (pace: Pace, of: PendingDelivery): Priority =>
    reschedule(pace, attempt(REJECTED, { of }), 0).priority;
  const streaking = paceAfter([REJECTED]);

  test("makes what failed only within it due at once", () => {
    expect(paceAfter([REJECTED]).streakRetryAt).toBe(NEVER);
    expect(paceAfter([REJECTED, OK]).streakRetryAt).toBe(NOW + 20);
  });

  test("is not moved by a success without a streak", () => {
    const ended = paceAfter([REJECTED, OK]);
    const later = attempt(OK, { at: NOW + 5_000 });
    expect(adjustPace(ended, later).streakRetryAt).toBe(ended.streakRetryAt);
  });

  test("concerns an event whose first attempt fails", () => {
    expect(priorityAfter(INITIAL_PACE, delivery())).toBe(PRIORITY.inStreak);
  });

  test.each([
    ["had ended", { attempts: 0, lastAt: NOW - 1 }],
    ["failed before the streak", { attempts: 4, lastAt: NOW - 1 }],
    ["failed within the streak", { attempts: 4, lastAt: NOW }],
  ])("concerns a manual send of what %s only if a streak has begun before", (_, before) => {
    const of = delivery({ priority: PRIORITY.manual, ...before });
    expect(priorityAfter(INITIAL_PACE, of)).toBe(PRIORITY.scheduled);
    expect(priorityAfter(streaking, of)).toBe(PRIORITY.inStreak);
  });

  test.each([INITIAL_PACE, streaking])("never concerns an event that cannot be read", (pace) => {
    const failed = attempt({ kind: "unreadable" });
    expect(reschedule(pace, failed, 0).priority).toBe(PRIORITY.scheduled);
  });

  test("concerns an event that fails again within the streak", () => {
    expect(
      priorityAfter(streaking, delivery({ priority: PRIORITY.inStreak, attempts: 1, lastAt: NOW })),
    ).toBe(PRIORITY.inStreak);
  });

  test("no longer concerns an event that failed in an earlier streak", () => {
    const of = delivery({ priority: PRIORITY.inStreak, attempts: 1, lastAt: NOW - 1 });
    expect(priorityAfter(streaking, of)).toBe(PRIORITY.scheduled);
    expect(priorityAfter(INITIAL_PACE, of)).toBe(PRIORITY.scheduled);
  });

  test("does not concern an event again that is on its own schedule", () => {
    expect(
      priorityAfter(
        streaking,
        delivery({ priority: PRIORITY.scheduled, attempts: 2, lastAt: NOW }),
      ),
    ).toBe(PRIORITY.scheduled);
  });

  test("concerns a replayed event whose first attempt fails", () => {
    expect(
      priorityAfter(streaking, delivery({ priority: PRIORITY.scheduled, lastAt: NOW - 1 })),
    ).toBe(PRIORITY.inStreak);
  });
});

describe("the record of an event type", () => {
  const note = (known: TypeOutcomes, noted: Attempt<Outcome>, before = INITIAL_PACE) =>
    noteTypeOutcome(known, noted, before, adjustPace(before, noted));
  const rejected = note(INITIAL_TYPE_OUTCOMES, attempt(REJECTED));

  test("has when its events began to fail, and how the last one failed", () => {
    const later = note(rejected, attempt(BUSY, { at: NOW + 60_000 }));
    const rejection = { since: NOW + 20, outcome: "answered", status: 503 };
    expect(later).toMatchObject({ rejections: { [LEAD]: rejection }, acceptedTypes: [] });
  });

  test("has no failure before its streak, even if the clock was set back during the attempt", () => {
    const setBack = { ...attempt(REJECTED), endedAt: NOW - 60_000 };
    expect(note(INITIAL_TYPE_OUTCOMES, setBack).rejections[LEAD]?.since).toBe(NOW);
  });

  test("has until when it yields: for three times as long as an attempt has held up the others", () => {
    const yieldsUntil = (types: TypeOutcomes) => types.rejections[LEAD]?.yieldsUntil;
    // A rejection took 20 ms, and began no wait.
    expect(yieldsUntil(rejected)).toBe(NOW + 4 * 20);
    const asked = attempt({ kind: "answered", status: 429, retryAfterSeconds: 1_800 });
    const busy = note(INITIAL_TYPE_OUTCOMES, asked);
    expect(yieldsUntil(busy)).toBe(NOW + 4 * (20 + 1_800_000));
    // One that was in flight when the wait began yields for its own time only, and shortens nothing.
    const during = adjustPace(INITIAL_PACE, asked);
    expect(yieldsUntil(note(INITIAL_TYPE_OUTCOMES, attempt(REJECTED), during))).toBe(NOW + 4 * 20);
    expect(note(busy, attempt(REJECTED), during).rejections[LEAD]).toMatchObject({
      yieldsUntil: NOW + 4 * (20 + 1_800_000),
    });
  });

  test("has that its last attempt succeeded", () => {
    expect(note(rejected, attempt(OK))).toEqual({
      rejections: {},
      acceptedTypes: [LEAD],
    });
  });

  test("has that its last attempt failed, and nothing else of the other types", () => {
    const accepted = { rejections: {}, acceptedTypes: [LEAD, RUN] };
    expect(note(accepted, attempt(REJECTED)).acceptedTypes).toEqual([RUN]);
  });

  test("is not changed by attempts at another type", () => {
    const of = delivery({ type: RUN });
    expect(note(rejected, attempt(OK, { of })).rejections).toEqual(rejected.rejections);
  });

  test("is not changed by a manual send that fails", () => {
    const accepted = note(INITIAL_TYPE_OUTCOMES, attempt(OK));
    const manual = attempt(REJECTED, { of: delivery({ priority: PRIORITY.manual }) });
    expect(note(accepted, manual)).toBe(accepted);
  });
});

describe("a subscription is disabled", () => {
  const streak = {
    startedAt: NOW - DISABLE_AFTER_MS,
    events: 2,
    attempts: DISABLE_AFTER_FAILURES,
    outageStep: 0,
    unavailableSince: null as number | null,
    turns: {},
  };
  const failing = (more: Partial<typeof streak> = {}): Pace => ({
    ...INITIAL_PACE,
    streak: { ...streak, ...more },
  });
  const isDisabled = (
    pace: Pace,
    outcome: Outcome,
    acceptedTypes: WebhookEvent[] = [],
    rejections: TypeOutcomes["rejections"] = {},
  ) => isDead(pace, { rejections, acceptedTypes }, attempt(outcome), [LEAD, RUN]);

  test("after 72 hours without a success, ten failed attempts and two events", () => {
    expect(isDisabled(failing(), REJECTED)).toBe(true);
    // The attempt ends 20 ms after it has started.
    expect(isDisabled(failing({ startedAt: streak.startedAt + 20 }), REJECTED)).toBe(true);
  });

  test.each([
    { startedAt: streak.startedAt + 21 },
    { attempts: DISABLE_AFTER_FAILURES - 1 },
    { events: 1 },
  ])("not yet with %j", (more) => {
    expect(isDisabled(failing(more), REJECTED)).toBe(false);
  });

  test("not if it accepted one of its event types last", () => {
    expect(isDisabled(failing(), REJECTED, [LEAD])).toBe(false);
  });

  test("if its endpoint has been unavailable for as long, whatever it accepted before", () => {
    const unavailableSince = streak.startedAt + 20;
    expect(isDisabled(failing({ unavailableSince }), TIMED_OUT, [LEAD])).toBe(true);
    const later = failing({ unavailableSince: unavailableSince + 1 });
    expect(isDisabled(later, TIMED_OUT, [LEAD])).toBe(false);
    expect(isDisabled(later, TIMED_OUT)).toBe(true);
  });

  test("not if one of its event types has failed for less than that", () => {
    const rejected = (since: number) => ({ [RUN]: { since, outcome: "answered", status: 400 } });
    expect(isDisabled(failing(), REJECTED, [], rejected(streak.startedAt + 21))).toBe(false);
    expect(isDisabled(failing(), REJECTED, [], rejected(streak.startedAt + 20))).toBe(true);
  });

  test("not by a manual send that fails", () => {
    const failed = attempt(TIMED_OUT, { of: delivery({ priority: PRIORITY.manual }) });
    expect(isDead(failing(), INITIAL_TYPE_OUTCOMES, failed, [LEAD])).toBe(false);
  });

  test("if it only accepted an event type that it no longer lists", () => {
    expect(isDisabled(failing(), REJECTED, ["automation.status_changed"])).toBe(true);
  });
});
