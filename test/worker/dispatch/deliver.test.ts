import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { eq } from "drizzle-orm";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { DISABLE_AFTER_MS } from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import { attempts, PRIORITY, workspaces } from "../../../src/db/schema.ts";
import type { Outcome } from "../../../src/delivery/policy.ts";
import { CLAIM_MAX, LEASE_MS } from "../../../src/dispatch/claims.ts";
import {
  DISPATCH_MAX_MS,
  DISPATCH_TRANSACTIONS_MAX,
  type DispatchPorts,
  deliver,
} from "../../../src/dispatch/deliver.ts";
import { UnreadableEvent } from "../../../src/events/bodies.ts";
import { Platform } from "../../../src/platform/entrypoint.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import { deleteSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { leadReport } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  failAt,
  failAtTrip,
  failingSince,
  HOUR_MS,
  heldDispatch,
  isolated,
  LINES,
  MINUTE_MS,
  observedDatabase,
  owed,
  portsAt,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db, WORKSPACE_DB } from "../../support/placement.ts";
import { insertDeliveries } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";
import { steadyClock } from "../../support/timers.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const LATER = NOW + LEASE_MS;
const OK = answered(200);
const REJECTED = answered(400);
const NOT_ATTEMPTED = () => Promise.reject(new Error("no encryption key"));

let clock: ReturnType<typeof steadyClock>;
// On a busy machine, a claim would be over after a second, and a dispatch after ten.
beforeEach(() => {
  clock = steadyClock();
});
afterEach(() => void vi.restoreAllMocks());

/** An endpoint that counts its concurrent requests; each takes a few milliseconds. */
function counting() {
  const underWay: number[] = [];
  let current = 0;
  const { posts, attempt } = subscriber(async () => {
    underWay.push(++current);
    await sleep(5);
    current--;
    return OK;
  });
  return { posts, attempt, underWay };
}

describe("a dispatch", () => {
  test("claims nothing that is not due yet, in one transaction, and asks for a message when it is", async () => {
    const { id } = await owed(1, NOW);
    const { DB, trips } = observedDatabase();
    const wakeUps = await dispatchOn(DB, NOW - 5_000, [id], OK);
    expect(wakeUps).toEqual([{ subscriptionId: id, queue: "fast", wakeAt: NOW }]);
    // The second one notes the message.
    expect(trips).toHaveLength(2);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", stepsUsed: 0, dueAt: NOW });
    expect(await subscriptionRow(id)).toMatchObject({
      leasedBy: null,
      leasedUntil: 0,
      nextMessageAt: NOW,
    });
    // A message is underway by then.
    expect(await dispatchAt(NOW - 4_000, [id], OK)).toEqual([]);
    // It has come, perhaps by another clock.
    expect(await dispatchAt(NOW - 1_000, [id], OK)).toMatchObject([{ wakeAt: NOW }]);
  });

  test("asks for a message a day ahead at most, as queues require, and then for another one", async () => {
    const { id } = await owed(1, NOW);
    await setDeliveries(id, { dueAt: NOW + 1.2 * DAY_MS, priority: PRIORITY.retry, stepsUsed: 10 });
    expect(await dispatchAt(NOW, [id], OK)).toMatchObject([{ wakeAt: NOW + DAY_MS }]);
    expect(await dispatchAt(NOW + DAY_MS, [id], OK)).toMatchObject([
      { wakeAt: NOW + 1.2 * DAY_MS },
    ]);
  });

  test.each([
    [1, 2],
    [20, 2],
    // If as many were found as were asked for, there may be more: it claims once more.
    [CLAIM_MAX.fast, 2],
    [CLAIM_MAX.fast + 1, 3],
  ])("of %i events makes %i transactions", async (events, transactions) => {
    const { id } = await owed(events, NOW);
    const { DB, trips } = observedDatabase();
    const { posts, attempt } = subscriber();
    expect(await dispatchOn(DB, NOW, [id], attempt)).toEqual([]);
    expect(posts).toHaveLength(events);
    expect(trips).toHaveLength(transactions);
  });

  test("sends at the concurrency of the subscription, which grows from one to six", async () => {
    const { id } = await owed(60, NOW);
    const { posts, attempt, underWay } = counting();
    await dispatchAt(NOW, [id], attempt);
    expect([posts.length, new Set(posts).size]).toEqual([60, 60]);
    expect(underWay.slice(0, 3)).toEqual([1, 1, 2]);
    expect(Math.max(...underWay)).toBe(6);
    expect(await subscriptionRow(id)).toMatchObject({ concurrency: 6 });
  });

  test("uses no more connections than its share", async () => {
    const { id } = await owed(20, NOW);
    await setSubscription(id, { concurrency: 6 });
    const { attempt, underWay } = counting();
    await deliver(db, id, "fast", portsAt(NOW, attempt), 2);
    expect(Math.max(...underWay)).toBe(2);
    expect(await statesOf(id)).toEqual({ delivered: 20 });
  });

  test("claims no more than fits into memory, however large the events are", async () => {
    const customFields = { note: "x".repeat(15_000) };
    const { id } = await owed(CLAIM_MAX.fast + 1, NOW, { customFields });
    const bytes: number[] = [];
    const DB = interposed(WORKSPACE_DB, async ({ go }) => {
      const results = await go();
      bytes.push(JSON.stringify(results).length);
      return results;
    });
    await dispatchOn(DB, NOW, [id], OK);
    expect(Math.max(...bytes)).toBeGreaterThan(1_000_000);
    expect(Math.max(...bytes)).toBeLessThan(3_500_000);
  });

  test("claims a few at a time in the slow queue, where each may take long", async () => {
    const { id } = await owed(CLAIM_MAX.slow + 1, NOW);
    await setSubscription(id, { slow: true });
    const claimed: number[] = [];
    const ports = portsAt(NOW, OK);
    const prepare: DispatchPorts["prepare"] = (rows, ...about) => {
      claimed.push(rows.length);
      return ports.prepare(rows, ...about);
    };
    await deliver(db, id, "slow", { ...ports, prepare }, 6);
    expect(claimed[0]).toBe(CLAIM_MAX.slow);
  });

  test.each(["draining", "locked"] as const)(
    "neither sends nor ends anything while its workspace is %s",
    async (writeLock) => {
      const { id, workspaceId } = await owed(1, NOW);
      await setSubscription(id, { hasToEnd: true, epoch: 1 });
      await db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, workspaceId));
      const { posts, attempt } = subscriber();
      expect(await dispatchAt(NOW, [id], attempt)).toEqual([]);
      expect(posts).toEqual([]);
      expect(await statesOf(id)).toEqual({ pending: 1 });
      await db.update(workspaces).set({ writeLock: null }).where(eq(workspaces.id, workspaceId));
    },
  );

  test("moves a slow endpoint to the slow queue, and back", async () => {
    const all = CLAIM_MAX.fast + CLAIM_MAX.slow;
    const { id } = await owed(all, NOW);
    await setSubscription(id, { concurrency: 6 });
    let durationMs = 2_000;
    let now = NOW;
    const { posts, attempt } = subscriber(() => {
      now += durationMs;
      return OK;
    });
    expect(await dispatchAt(() => now, [id], attempt)).toMatchObject([{ queue: "slow" }]);
    expect(posts).toHaveLength(CLAIM_MAX.fast);
    expect(await subscriptionRow(id)).toMatchObject({ slow: true, leasedUntil: 0 });
    durationMs = 100;
    expect(await dispatchAt(() => now, [id], attempt, "slow")).toEqual([]);
    expect(await subscriptionRow(id)).toMatchObject({ slow: false });
    expect(await statesOf(id)).toEqual({ delivered: all });
  });

  test("starts no request a second after its claim, even if the clock is set back, and claims again", async () => {
    const { id } = await owed(10, NOW - HOUR_MS);
    const { DB, trips } = observedDatabase();
    const startedIn: number[] = [];
    await dispatchOn(
      DB,
      () => NOW - clock.passedMs,
      [id],
      async () => {
        startedIn.push(trips.length);
        clock.passedMs += 600;
        return OK;
      },
    );
    expect(startedIn.slice(0, 4)).toEqual([1, 1, 2, 2]);
    expect(startedIn).toHaveLength(10);
  });

  test.each<[string, (trip: number) => boolean, Record<string, number>, number]>([
    ["is slow once", (trip) => trip === 1, { delivered: 150 }, 0],
    ["becomes slow", (trip) => trip > 1, { delivered: 100, pending: 50 }, 0],
    ["stays slow", () => true, { pending: 150 }, 1],
  ])(
    "whose database %s fails only if it could send nothing before its time is up",
    async (_, isSlow, states, failures) => {
      const { id } = await owed(150, NOW);
      const after = (trip: number) => {
        if (isSlow(trip)) clock.passedMs += 1_001;
      };
      const { DB } = observedDatabase({ after });
      const ended = await Promise.allSettled([dispatchOn(DB, NOW, [id], OK)]);
      expect(await statesOf(id)).toEqual(states);
      expect(ended.filter(({ status }) => status === "rejected")).toHaveLength(failures);
      expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
    },
  );

  test("claims no more once its time is up, and asks for another one", async () => {
    const { id } = await owed(2 * CLAIM_MAX.fast, NOW);
    const { posts, attempt } = subscriber(() => {
      clock.passedMs = DISPATCH_MAX_MS;
      return OK;
    });
    const wakeUps = await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(1);
    expect(wakeUps).toEqual([{ subscriptionId: id, queue: "fast" }]);
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
    expect(await statesOf(id)).toEqual({ delivered: 1, pending: 2 * CLAIM_MAX.fast - 1 });
  });

  test("executes a bounded number of statements, and leaves the rest to the next one", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await insertDeliveries(
      Array.from({ length: 20_000 }, (_, i) => ({
        subscriptionId: id,
        eventId: `evt_${i}`,
        workspaceId,
      })),
    );
    const cancelledBefore = { "lead.created": 1 };
    await setSubscription(id, { hasToEnd: true, epoch: 1, cancelledBefore });
    const { DB, trips } = observedDatabase();
    const wakeUps = await dispatchOn(DB, NOW, [id], OK);
    expect(trips).toHaveLength(DISPATCH_TRANSACTIONS_MAX);
    // Six of them in an invocation, which may execute 1,000.
    expect(trips.flat().length).toBeLessThan(160);
    expect(wakeUps).toEqual([{ subscriptionId: id, queue: "fast" }]);
    expect((await statesOf(id)).pending).toBeGreaterThan(0);
  });

  test("notes its last attempt as the last one of the subscription, unless it could not be made or read", async () => {
    const { id } = await owed(3, NOW);
    const errors = [null, new UnreadableEvent(), new Error("no encryption key")];
    let now = NOW;
    await dispatchAt(
      () => now++,
      [id],
      async () => {
        const error = errors.shift();
        if (error) throw error;
        return OK;
      },
    );
    const times = (await deliveriesTo(id)).flatMap(({ state, lastAt }) =>
      state === "delivered" ? (lastAt ?? 0) : [],
    );
    expect(times).toHaveLength(1);
    expect((await subscriptionRow(id)).lastAttempt).toMatchObject({
      at: times[0],
      outcome: "answered",
      status: 200,
    });
  });

  test("notes the attempt that ended last, though the response to an earlier one is read for longer", async () => {
    const { id, drafts } = await owed(2, NOW);
    await setSubscription(id, { concurrency: 2 });
    // A success does not make a retry due.
    await setDeliveries(id, { priority: PRIORITY.retry }, drafts[0]?.id);
    await dispatchAt(NOW, [id], async ({ eventId }) => {
      if (eventId === drafts[0]?.id)
        return { ...REJECTED, storedResponse: sleep(20).then(() => null) };
      await sleep(5);
      return OK;
    });
    const { failingSince, lastAttempt } = await subscriptionRow(id);
    expect({ failingSince, lastAttempt }).toMatchObject({
      failingSince: null,
      lastAttempt: { status: 200 },
    });
  });

  test("counts no time for an attempt during which the clock is set back", async () => {
    const { id } = await owed(1, NOW - 10_000);
    let now = NOW;
    await dispatchAt(
      () => now,
      [id],
      async () => {
        now -= 5_000;
        return OK;
      },
    );
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", lastDurationMs: 0 });
  });
});

describe("a lease", () => {
  test("lasts 20 s, during which no other dispatch sends to the subscription", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const { posts, attempt } = subscriber();
    const held = await heldDispatch(NOW, id);
    expect(await subscriptionRow(id)).toMatchObject({
      leasedUntil: LATER,
      leasedBy: expect.any(String),
    });
    await announceLeads(workspaceId, 1, NOW);
    // The dispatch that leases it looks for more before it releases the lease.
    for (const now of [NOW, LATER - 1]) expect(await dispatchAt(now, [id], attempt)).toEqual([]);
    await held.finish(OK);
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
  });

  test.each([
    ["a failure", REJECTED, OK, { state: "delivered", lastStatus: 200 }, 0],
    ["a success", OK, REJECTED, { state: "pending", lastStatus: 400 }, 1],
  ])("that was lost settles nothing, with %s", async (_, late, inTime, delivery, failures) => {
    const { id } = await owed(1, NOW);
    const lost = await heldDispatch(NOW, id);
    await dispatchAt(LATER, [id], inTime);
    await lost.finish(late);
    expect(await deliveryTo(id)).toMatchObject({ ...delivery, attemptsMade: 1 });
    expect(await subscriptionRow(id)).toMatchObject({ failures });
  });

  test("that was lost disables nothing", async () => {
    const { id } = await owed(2, NOW);
    await setSubscription(id, { failures: 10, failingSince: NOW - 75 * HOUR_MS });
    const late = await heldDispatch(NOW, id);
    const inTime = await heldDispatch(LATER, id);
    await late.finish(REJECTED);
    await inTime.finish(OK);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, disabledAt: null });
  });

  test("that was lost brings nothing forward", async () => {
    const { id, drafts } = await owed(2, NOW);
    const rejected = drafts[1]?.id ?? "";
    const dueAt = NOW + HOUR_MS;
    await setDeliveries(id, { dueAt, priority: PRIORITY.retry }, rejected);
    const circuit = {
      step: 0,
      probeAt: 0,
      since: NOW,
      outcome: "answered",
      status: 400,
    } as const;
    await setSubscription(id, {
      circuits: { "lead.created": { ...circuit, rejected: [rejected] } },
    });
    const lost = await heldDispatch(NOW, id);
    await dispatchAt(LATER, [id], REJECTED);
    await lost.finish(OK);
    const rows = await deliveriesTo(id);
    expect(rows.find(({ eventId }) => eventId === rejected)).toMatchObject({ dueAt });
  });

  test("that ran out before its workspace was locked settles nothing, which is no error", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const held = await heldDispatch(NOW, id);
    const lock = (writeLock: "locked" | null) =>
      db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, workspaceId)).run();
    await lock("locked");
    expect(await held.finish(OK)).toEqual([]);
    await lock(null);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attemptsMade: 0 });
  });

  test("whose subscription was deleted in the meantime ends with the request in progress", async () => {
    const { id, workspaceId } = await owed(5, NOW);
    const held = await heldDispatch(NOW, id);
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    clock.passedMs = 1_000;
    await held.finish(OK);
    expect(await statesOf(id)).toEqual({ delivered: 1, cancelled: 4 });
  });

  test("is kept for an event that is committed just before it would be released", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 2 && (await announceLeads(workspaceId, 1, NOW))),
    });
    expect(await dispatchOn(DB, NOW, [id], OK)).toEqual([]);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
  });
});

test("If the reply to a claim is lost, its second try sends what the first one has leased", async () => {
  const { id } = await owed(2, NOW);
  const { DB } = observedDatabase({ after: failAtTrip(1) });
  const { posts, attempt } = subscriber();
  expect(await dispatchOn(DB, NOW, [id], attempt)).toEqual([]);
  expect([posts.length, await statesOf(id)]).toEqual([2, { delivered: 2 }]);
});

describe("if the reply to a settlement is lost, its second try", () => {
  /** Dispatches, while the reply to the settlement is lost, and does something before the second try. */
  const dispatchLosing = (
    id: string,
    outcome: DispatchPorts["attempt"] | typeof OK,
    meanwhile: () => Promise<unknown>,
  ) => {
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 3 && (await meanwhile())),
      after: failAtTrip(2),
    });
    return dispatchOn(DB, NOW, [id], outcome);
  };

  const countsOf = async (id: string) =>
    Object.values((await subscriptionRow(id)).dailyCounts)[0] ?? {};

  test("counts nothing twice", async () => {
    const { id } = await owed(1, NOW);
    await dispatchLosing(id, REJECTED, async () => {});
    expect(await deliveryTo(id)).toMatchObject({ stepsUsed: 1, attemptsMade: 1 });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 1 });
    expect(await countsOf(id)).toMatchObject({ "lead.created failed": 1 });
  });

  test("claims what was recorded in the meantime", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await dispatchLosing(id, OK, () => announceLeads(workspaceId, 1, NOW));
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });

  test("does not release the lease of another dispatch", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    let other: Awaited<ReturnType<typeof heldDispatch>> | undefined;
    const wakeUps = await dispatchLosing(id, OK, async () => {
      await announceLeads(workspaceId, 1, NOW);
      other = await heldDispatch(NOW, id);
    });
    expect(wakeUps).toEqual([]);
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: LATER });
    await other?.finish(OK);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });

  test("undoes no replay", async () => {
    const { id } = await owed(1, NOW);
    const range = { since: NOW, until: null, states: ["delivered"] } as const;
    await dispatchLosing(id, OK, async () => {
      await redeliver(id, range, NOW + 1);
      await setDeliveries(id, { dueAt: NOW + HOUR_MS });
    });
    expect(await deliveryTo(id)).toMatchObject({
      state: "pending",
      attemptsMade: 1,
      deliveredEarlier: true,
    });
  });
});

describe("an attempt", () => {
  test.each([1, 3])("that cannot be made is none: %i are held for five minutes", async (count) => {
    const { id } = await owed(count, NOW);
    const lastAttempt = { at: NOW - 1, outcome: "answered", status: 500, durationMs: 9 } as const;
    const last = { lastOutcome: "answered", lastStatus: 500, lastAt: NOW - 1, lastDurationMs: 9 };
    await setDeliveries(id, last);
    await setSubscription(id, { lastAttempt });
    const impossible = subscriber(NOT_ATTEMPTED);
    const wakeUps = await dispatchAt(NOW, [id], impossible.attempt);
    expect(impossible.posts).toHaveLength(1);
    const untried = { stepsUsed: 0, attemptsMade: 0, state: "pending", ...last };
    expect(await deliveriesTo(id)).toMatchObject(Array(count).fill({ ...untried, dueAt: NOW }));
    const heldUntil = NOW + 5 * MINUTE_MS;
    expect(wakeUps).toMatchObject([{ wakeAt: heldUntil }]);
    expect(await subscriptionRow(id)).toMatchObject({
      failures: 0,
      failingSince: null,
      lastAttempt,
    });
    const { posts, attempt } = subscriber();
    await dispatchAt(heldUntil - 1, [id], attempt);
    expect(posts).toEqual([]);
    await dispatchAt(heldUntil, [id], attempt);
    expect(posts).toHaveLength(count);
  });

  test.each<[string, Outcome, status: number | null]>([
    ["with a response", answered(400), 400],
    ["without a response", { kind: "timed_out" }, null],
  ])("%s leaves no status of the one before", async (_, outcome, lastStatus) => {
    const { id } = await owed(1, NOW);
    await setDeliveries(id, { lastOutcome: "answered", lastStatus: 500, lastAt: NOW - 1 });
    await dispatchAt(NOW, [id], outcome);
    const last = { lastOutcome: outcome.kind, lastStatus, lastAt: NOW };
    expect(await deliveryTo(id)).toMatchObject(last);
  });

  test("at an event that cannot be read holds up no other", async () => {
    const { id, drafts } = await owed(3, NOW);
    await dispatchAt(NOW, [id], async ({ eventId }) => {
      if (eventId === drafts[0]?.id) throw new UnreadableEvent();
      return OK;
    });
    expect(await statesOf(id)).toEqual({ delivered: 2, pending: 1 });
    expect(await subscriptionRow(id)).toMatchObject({ circuits: {}, failures: 0 });
  });

  test.each([
    ["succeeds", OK],
    ["fails", REJECTED],
  ])(
    "during which its delivery is resent %s, and the delivery is sent again",
    async (_, outcome) => {
      const { id, drafts } = await owed(1, NOW);
      const { posts, attempt } = subscriber(async () => {
        if (posts.length > 1) return OK;
        await redeliver(id, [drafts[0]?.id ?? ""], NOW + 1);
        return outcome;
      });
      await dispatchAt(NOW, [id], attempt);
      const deliveredEarlier = outcome === OK;
      expect(await deliveryTo(id)).toMatchObject({ state: "pending", deliveredEarlier });
      await dispatchAt(NOW + 1, [id], attempt);
      expect(posts).toHaveLength(2);
      expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attemptsMade: 2 });
      const before = await db.select().from(attempts).where(eq(attempts.subscriptionId, id));
      expect(before).toMatchObject([{ outcome: "answered" }]);
    },
  );
});

describe("rows", () => {
  test("next to 1,000 settled deliveries, a dispatch reads only pending ones, and writes only its own", async () => {
    const { id, workspaceId } = await owed(0, NOW);
    await storeEvents(workspaceId, id, 1_000, NOW, "delivered");
    await announceLeads(workspaceId, 10, NOW);
    const { DB, rows } = meteredDatabase();
    await dispatchOn(DB, NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 1_010 });
    expect(rows.read).toBeLessThan(260 + 20 * LINES);
    expect(rows.written).toBeLessThan(20);
  });

  test("a single healthy delivery costs eight rows written from record to release, two of them for its lead", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, Date.now());
    await dispatchAt(Date.now() + 1, [id], OK);
    await setSubscription(id, { concurrency: 6 });
    const { DB, rows } = meteredDatabase();
    const context = createExecutionContext();
    const platform = new Platform(context, isolated({ DB }).env);
    await platform.recordLeads({ workspaceId, leads: [leadReport("lead-1")] });
    // The lead and its index entry, its event, and its delivery with its index entry.
    expect(rows.written).toBe(5);
    // The audit trail notes the call, later.
    await waitOnExecutionContext(context);
    rows.written = 5;
    await dispatchOn(DB, Date.now() + 1, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    // The lease, the delivery, and the sending state with the release.
    expect(rows.written).toBe(8);
  });

  test("a probe reads a few rows, however many deliveries wait", async () => {
    const { id } = await owed(500, NOW);
    await dispatchAt(NOW, [id], answered(503));
    const { DB, rows } = meteredDatabase();
    const { posts, attempt } = subscriber(() => answered(503));
    await dispatchOn(DB, NOW + MINUTE_MS, [id], attempt);
    expect(posts).toHaveLength(1);
    expect(rows.read).toBeLessThan(80 + 20 * LINES);
    expect(
      (await deliveriesTo(id)).filter(({ priority }) => priority === PRIORITY.retry),
    ).toHaveLength(2);
  });

  test("the decision to disable a subscription reads a few, however many deliveries failed before", async () => {
    const { id, workspaceId, drafts } = await owed(1, NOW);
    for (const state of ["exhausted", "pending"] as const)
      await storeEvents(workspaceId, id, 1_000, NOW - DAY_MS, state);
    await setSubscription(id, failingSince(NOW, 10));
    const { DB, rows } = meteredDatabase();
    const end = NOW + DISABLE_AFTER_MS;
    await dispatchOn(DB, end, [id], answered(503));
    expect(await subscriptionRow(id)).toMatchObject({ failures: 11, disabledAt: null });
    expect(rows.read).toBeLessThan(130 + 20 * LINES);
    await setDeliveries(id, { state: "exhausted" }, drafts[0]?.id);
    await announceLeads(workspaceId, 1, end);
    await failAt(id, [end + 1]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 12, disabledAt: end + 1 });
  });
});
