import { eq } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { PRIORITY, workspaces } from "../../../src/db/schema.ts";
import { DISPATCH_MAX_MS, dispatch } from "../../../src/delivery/dispatch.ts";
import { CLAIM_MAX } from "../../../src/delivery/due.ts";
import { InvocationLimit, type Outcome } from "../../../src/delivery/outcome.ts";
import type { DispatchPorts } from "../../../src/delivery/session.ts";
import { UnreadableEvent } from "../../../src/events/bodies.ts";
import {
  announceLeads,
  answered,
  db,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  FIRST_WAIT_MS,
  failAtTrip,
  HOUR_MS,
  heldDispatch,
  MINUTE_MS,
  observedDatabase,
  owed,
  owedToMany,
  portsAt,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  streakSince,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { until } from "../../support/until.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

describe("a dispatch", () => {
  test("sends nothing that is not due yet, and makes a single round trip", async () => {
    const { id } = await owed(1, NOW);
    const { DB, trips } = observedDatabase();
    const subscription = { subscriptionId: id, nextSendAt: NOW, leasedElsewhereUntil: null };
    const ended = await dispatchOn(DB, NOW - 1, [id], OK);
    expect(ended).toMatchObject([subscription]);
    expect(trips).toHaveLength(1);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 0, dueAt: NOW });
    expect(await subscriptionRow(id)).toMatchObject({ leasedBy: null, leasedUntil: 0 });
  });

  test("exhausts a delivery after the last step of the retry schedule", async () => {
    const { id } = await owed(1, NOW);
    const { posts, attempt } = subscriber(() => answered(500));
    let now = NOW;
    for (const [i, seconds] of RETRY_WAITS_SECONDS.entries()) {
      await dispatchAt(now, [id], attempt);
      now += seconds * 1000;
      const waiting = { state: "pending", attempts: i + 1, lastStatus: 500, dueAt: now };
      expect(await deliveryTo(id)).toMatchObject(waiting);
      expect(await subscriptionRow(id)).toMatchObject({
        streak: { events: 1 },
        blockedUntil: 0,
        failures: i + 1,
      });
      // It fails alone, so that nothing brings its next turn forward.
      expect(await dispatchAt(now - 1, [id], attempt)).toMatchObject([{ nextSendAt: now }]);
    }
    for (const laterMs of [0, HOUR_MS]) await dispatchAt(now + laterMs, [id], attempt);
    const attempts = RETRY_WAITS_SECONDS.length + 1;
    expect(posts).toHaveLength(attempts);
    expect(await deliveryTo(id)).toMatchObject({ state: "exhausted", settledAt: now, attempts });
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null, failures: attempts });
  });

  test("notes its last attempt as the last one of the subscription", async () => {
    const { id } = await owed(3, NOW);
    let now = NOW;
    await dispatchAt(() => now++, [id], OK);
    const times = (await deliveriesTo(id)).map(({ lastAt }) => lastAt ?? 0);
    expect((await subscriptionRow(id)).lastAttempt?.at).toBe(Math.max(...times));
    expect(new Set(times).size).toBe(3);
  });

  test("claims no more than fits into memory, however large the events are", async () => {
    const customFields = { note: "x".repeat(15_000) };
    const { id } = await owed(2.5 * CLAIM_MAX, NOW, { customFields });
    const bytes: number[] = [];
    const DB = interposed(WORKSPACE_DB, async ({ go }) => {
      const results = await go();
      bytes.push(JSON.stringify(results).length);
      return results;
    });
    await dispatchOn(DB, NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 2.5 * CLAIM_MAX });
    expect(Math.max(...bytes)).toBeLessThan(3_500_000);
    expect(bytes).toHaveLength(4);
  });

  test.each([
    ["draining", false],
    ["locked", false],
    ["draining", true],
    ["locked", true],
  ] as const)(
    "sends nothing while its workspace is %s (cancelling: %s)",
    async (writeLock, cancelling) => {
      const { id, workspaceId } = await owed(1, NOW);
      await setSubscription(id, { cancelling, cancelEpoch: 1 });
      await db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, workspaceId));
      const { DB, trips } = observedDatabase();
      const finished = await dispatchOn(DB, NOW, [id], OK);
      expect(trips).toHaveLength(1);
      const subscription = { maySend: false, leasedUntil: 0, cancelling: false };
      expect(finished).toMatchObject([subscription]);
      expect(await statesOf(id)).toEqual({ pending: 1 });
    },
  );

  test.each([
    [1, 1, 2],
    [1, 20, 2],
    [3, 1, 2],
    [20, 1, 2],
    // If as many were found as were asked for, there may be more: it asks once more.
    [20, 5, 3],
    [1, 100, 3],
  ])("to %i subscribers with %i events each makes %i round trips to D1", async (...figures) => {
    const [subscribers, events, roundTrips] = figures;
    const ids = await owedToMany(subscribers, events, NOW);
    const { DB, trips } = observedDatabase();
    const { posts, attempt } = subscriber();
    await dispatchOn(DB, NOW, ids, attempt);
    expect(posts).toHaveLength(subscribers * events);
    expect(trips).toHaveLength(roundTrips);
  });

  test("sends the longest due first, and continues until nothing is due", async () => {
    const { id, workspaceId, drafts: late } = await owed(2, NOW + 1000);
    const early = await announceLeads(workspaceId, 150, NOW);
    await announceLeads(workspaceId, 1, NOW + 3000);
    const { posts, attempt } = subscriber();
    const ended = await dispatchAt(NOW + 2000, [id], attempt);
    const ids = (drafts: typeof late) => drafts.map((draft) => draft.id).toSorted();
    expect(posts.slice(0, 150).toSorted()).toEqual(ids(early));
    expect(posts.slice(150).toSorted()).toEqual(ids(late));
    expect(await statesOf(id)).toEqual({ delivered: 152, pending: 1 });
    // Another clock may make an event due in the future: there is a wake for it.
    const subscription = { nextSendAt: NOW + 3000, leasedElsewhereUntil: null };
    expect(ended).toMatchObject([subscription]);
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
  });

  test("claims at most six at a time in the slow queue, where each may take long", async () => {
    const { id } = await owed(8, NOW);
    await setSubscription(id, { slow: true });
    const { DB, trips } = observedDatabase();
    const tripsBefore: number[] = [];
    let now = NOW;
    const slowly = async () => {
      tripsBefore.push(trips.length);
      now += 2_000;
      return OK;
    };
    await dispatchOn(DB, () => now, [id], slowly, "slow");
    const firstClaim = tripsBefore.filter((count) => count === 1).length;
    expect(firstClaim).toBeGreaterThan(0);
    expect(firstClaim).toBeLessThanOrEqual(6);
    for (let i = 0; i < 3; i++) await dispatchAt(() => now, [id], slowly, "slow");
    expect(await statesOf(id)).toEqual({ delivered: 8 });
    expect(await subscriptionRow(id)).toMatchObject({ slow: true, concurrency: 1 });
  });

  test.each([
    ["", DISPATCH_MAX_MS],
    [", even if its clock was set back", 0],
  ])("starts no post after its time is up%s, and releases the rest", async (_, wallMs) => {
    const ids = await owedToMany(4, 5, NOW);
    let passed = false;
    const startedAt = performance.now();
    const { posts, attempt } = subscriber(() => {
      passed = true;
      return OK;
    });
    const steady = vi.spyOn(performance, "now");
    steady.mockImplementation(() => startedAt + (passed ? DISPATCH_MAX_MS : 0));
    const ended = await dispatchAt(() => NOW + (passed ? wallMs : 0), ids, attempt);
    steady.mockRestore();
    // Those already started when the time was up.
    expect(posts.length).toBeLessThanOrEqual(6);
    const rows = (await Promise.all(ids.map(deliveriesTo))).flat();
    expect(rows.filter(({ state }) => state === "pending")).toMatchObject(
      Array(20 - posts.length).fill({ attempts: 0, lastOutcome: null, dueAt: NOW }),
    );
    const subscription = { leasedElsewhereUntil: null, nextSendAt: NOW };
    expect(ended).toMatchObject(Array(4).fill(subscription));
    for (const id of ids) expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
  });
});

test.each([
  ["alone", 0],
  ["among so many that each claims one delivery", 50],
])(
  "Only the delivery that is sent next is signed while requests are spaced: %s",
  async (_, others) => {
    const { id, drafts } = await owed(4, NOW);
    const [, retried, replayed] = drafts.map((draft) => draft.id);
    await setDeliveries(id, { priority: PRIORITY.inStreak, attempts: 1, lastAt: NOW }, retried);
    await setDeliveries(id, { priority: PRIORITY.scheduled }, replayed);
    await setSubscription(id, { ...streakSince(NOW, 5), blockedUntil: NOW });
    const signed: number[] = [];
    const ports = portsAt(NOW, answered(500));
    const prepare: DispatchPorts["prepare"] = (rows, ...about) => {
      signed.push(rows.length);
      return ports.prepare(rows, ...about);
    };
    const ids = [id, ...Array.from({ length: others }, (_, i) => `whk_${i}`)];
    const arrived = new Map(ids.map((each) => [each, 0]));
    await dispatch(db, arrived, { ...ports, prepare }, { queue: "fast" });
    expect(signed).toEqual([1, 0]);
  },
);

test("A manual send comes first, although more than a round claims have been due for longer", async () => {
  const { id, drafts } = await owed(CLAIM_MAX + 1, NOW);
  const manual = drafts[0]?.id;
  await setDeliveries(id, { priority: PRIORITY.manual, dueAt: NOW + 1 }, manual);
  const { posts, attempt } = subscriber();
  await dispatchAt(NOW + 1, [id], attempt);
  expect(posts[0]).toBe(manual);
});

describe("a failure", () => {
  test("that requests a delay ends the session without counting an attempt of the rest", async () => {
    const { id } = await owed(10, NOW);
    const { posts, attempt } = subscriber(() => answered(503));
    const ended = await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(1);
    const pace = { blockedUntil: NOW + 1_000 };
    const failed = { attempts: 1, dueAt: NOW + FIRST_WAIT_MS, lastStatus: 503 };
    const untried = { attempts: 0, dueAt: NOW, lastStatus: null };
    for (const row of await deliveriesTo(id)) {
      expect(row.state).toBe("pending");
      expect(row).toMatchObject(posts.includes(row.eventId) ? failed : untried);
    }
    const subscription = { ...pace, nextSendAt: pace.blockedUntil, leasedElsewhereUntil: null };
    expect(ended).toMatchObject([subscription]);
    const health = { failures: 1, failingSince: NOW, disabledAt: null, leasedUntil: 0 };
    expect(await subscriptionRow(id)).toMatchObject({ ...pace, ...health });
  });

  test("of ours does not shorten a delay that the endpoint requested", async () => {
    const { id, drafts } = await owed(1, NOW);
    const blockedUntil = NOW + 30 * MINUTE_MS;
    await setSubscription(id, { blockedUntil });
    await redeliver(id, [drafts[0]?.id ?? ""], NOW);
    const { posts, attempt } = subscriber(() => Promise.reject(new Error("no encryption key")));
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(1);
    expect((await subscriptionRow(id)).blockedUntil).toBe(blockedUntil);
  });

  test("of ours leaves the last attempt that was made as the last one", async () => {
    const { id } = await owed(1, NOW);
    const lastAttempt = { at: NOW - 1, outcome: "answered", status: 200, durationMs: 1 };
    await setSubscription(id, { lastAttempt });
    await dispatchAt(NOW, [id], () => Promise.reject(new Error("no encryption key")));
    expect((await subscriptionRow(id)).lastAttempt).toEqual(lastAttempt);
  });

  test("of ours leaves one request at a time, as long as requests are spaced", async () => {
    const { id } = await owed(1, NOW);
    await setSubscription(id, { concurrency: 6 });
    await dispatchAt(NOW, [id], () => Promise.reject(new Error("no encryption key")));
    expect(await subscriptionRow(id)).toMatchObject({ concurrency: 1 });
  });

  test("of a manual send keeps the retry schedule, even if the reply to its round is lost", async () => {
    const { id } = await owed(1, NOW);
    const scheduledAt = NOW + HOUR_MS;
    await setDeliveries(id, { priority: PRIORITY.manual, attempts: 5, scheduledAt });
    const { DB } = observedDatabase({ after: failAtTrip(2) });
    await dispatchOn(DB, NOW, [id], () => Promise.reject(new Error("no encryption key")));
    expect(await deliveryTo(id)).toMatchObject({
      scheduledAt,
      attempts: 5,
      dueAt: NOW + 5 * MINUTE_MS,
    });
  });

  test("of a manual send leaves the last attempt at its delivery as it was", async () => {
    const { id } = await owed(1, NOW);
    const last = { lastAt: NOW - 9, lastOutcome: "answered", lastStatus: 500, lastDurationMs: 7 };
    await setDeliveries(id, { priority: PRIORITY.manual, attempts: 1, ...last });
    await dispatchAt(NOW, [id], () => Promise.reject(new Error("no encryption key")));
    expect(await deliveryTo(id)).toMatchObject(last);
  });

  test("of a manual send keeps the retry schedule after a lost reply, even if it is sent by hand again", async () => {
    const { id, drafts } = await owed(1, NOW);
    const scheduledAt = NOW + HOUR_MS;
    await setDeliveries(id, { priority: PRIORITY.manual, attempts: 5, scheduledAt });
    const { DB } = observedDatabase({
      before: async (trip) =>
        void (trip === 3 && (await redeliver(id, [drafts[0]?.id ?? ""], NOW + 1))),
      after: failAtTrip(2),
    });
    await dispatchOn(DB, NOW, [id], () => Promise.reject(new Error("no encryption key")));
    expect(await deliveryTo(id)).toMatchObject({ scheduledAt, dueAt: NOW + 1 });
  });

  test.each([
    ["that could not be made", new Error("no encryption key")],
    ["at an event that cannot be read", new UnreadableEvent()],
  ])("%s does not hide one that was made as the last attempt", async (_, error) => {
    const { id } = await owed(2, NOW);
    await setDeliveries(id, { priority: PRIORITY.manual });
    const { posts, attempt } = subscriber(() => {
      if (posts.length > 1) throw error;
      return answered(200);
    });
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(2);
    expect((await subscriptionRow(id)).lastAttempt).toMatchObject({ outcome: "answered" });
  });

  test.each([
    ["that could not be made", new InvocationLimit("Too many subrequests")],
    ["at an event that cannot be read", new UnreadableEvent()],
  ])(
    "%s does not hide one that a round has recorded before as the last attempt",
    async (_, error) => {
      const { id } = await owed(2, NOW);
      // A success changes no pace.
      await setSubscription(id, { concurrency: 6, acceptedTypes: ["lead.created"] });
      const second = Promise.withResolvers<Outcome>();
      const { DB } = observedDatabase({
        after: (trip) => void (trip === 2 && second.reject(error)),
      });
      const { posts, attempt } = subscriber(() => (posts.length === 1 ? OK : second.promise));
      // An outcome is recorded a second later, although another request is in flight.
      const startedAt = Date.now();
      await dispatchOn(DB, () => NOW + Date.now() - startedAt, [id], attempt);
      expect(posts).toHaveLength(2);
      expect((await subscriptionRow(id)).lastAttempt).toMatchObject({ outcome: "answered" });
    },
  );

  test("of a manual send stores no wait that a replay has ended in the meantime", async () => {
    const { id, drafts } = await owed(1, NOW);
    await setSubscription(id, { blockedUntil: NOW + HOUR_MS });
    await redeliver(id, [drafts[0]?.id ?? ""], NOW);
    const held = await heldDispatch(NOW, id);
    await redeliver(id, { since: NOW, until: null, states: ["exhausted"] }, NOW + 1);
    await held.finish(answered(500));
    expect((await subscriptionRow(id)).blockedUntil).toBe(NOW + 1);
  });

  test("in flight while a replay ends the wait of another one does not restore it", async () => {
    const { id } = await owed(2, NOW);
    await setSubscription(id, { concurrency: 2 });
    const range = { since: NOW, until: null, states: ["exhausted"] } as const;
    const second = Promise.withResolvers<Outcome>();
    const { DB } = observedDatabase({
      // The second round records the first failure.
      async after(trip) {
        if (trip !== 2) return;
        await redeliver(id, range, NOW + 2_000);
        second.resolve(answered(503));
      },
    });
    const { posts, attempt } = subscriber(() =>
      posts.length === 1
        ? until(() => posts.length === 2).then(() => answered(503, 1_800))
        : second.promise,
    );
    // An outcome is recorded a second later, although another request is in flight.
    const startedAt = Date.now();
    await dispatchOn(DB, () => NOW + Date.now() - startedAt, [id], attempt);
    expect(posts).toHaveLength(2);
    expect((await subscriptionRow(id)).blockedUntil).toBe(NOW + 2_000);
  });

  test.each([
    ["of the endpoint", () => Promise.resolve(answered(429, 1_800))],
    ["of ours", () => Promise.reject(new Error("no encryption key"))],
  ])(
    "%s that is recorded again after a lost reply stores no wait that a replay has ended",
    async (_, attempt) => {
      const { id } = await owed(1, NOW);
      const range = { since: NOW, until: null, states: ["exhausted"] } as const;
      const { DB, trips } = observedDatabase({
        before: async (trip) => void (trip === 3 && (await redeliver(id, range, NOW + 1))),
        after: failAtTrip(2),
      });
      await dispatchOn(DB, NOW, [id], attempt);
      expect(trips.length).toBeGreaterThan(2);
      expect((await subscriptionRow(id)).blockedUntil).toBe(NOW + 1);
    },
  );

  test("that succeeds and is recorded again after a lost reply undoes no replay", async () => {
    const { id } = await owed(1, NOW);
    const range = { since: NOW, until: null, states: ["delivered"] } as const;
    const { DB, trips } = observedDatabase({
      before: async (trip) => void (trip === 3 && (await redeliver(id, range, NOW + 1))),
      after: failAtTrip(2),
    });
    await dispatchOn(DB, NOW, [id], answered(200));
    expect(trips.length).toBeGreaterThan(2);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attemptsMade: 1 });
  });

  test.each([1, 3])("is not the subscriber's if none of %i could be tried", async (count) => {
    const { id } = await owed(count, NOW);
    const impossible = subscriber(() => Promise.reject(new Error("no encryption key")));
    const ended = await dispatchAt(NOW, [id], impossible.attempt);
    expect(impossible.posts).toHaveLength(1);
    const untried = { attempts: 0, lastOutcome: null, lastStatus: null };
    expect(await deliveriesTo(id)).toMatchObject(
      Array(count).fill({ ...untried, state: "pending", dueAt: NOW }),
    );
    const blockedUntil = NOW + 5 * MINUTE_MS;
    const health = {
      failures: 0,
      failingSince: null,
      leasedUntil: 0,
      blockedUntil,
    };
    expect(await subscriptionRow(id)).toMatchObject(health);
    expect(ended).toMatchObject([{ blockedUntil }]);
    const { posts, attempt } = subscriber();
    await dispatchAt(blockedUntil - 1, [id], attempt);
    expect(posts).toEqual([]);
    // It is tried with one, and then gets the others.
    for (let i = 0; i < 2; i++) await dispatchAt(blockedUntil, [id], attempt);
    expect(posts).toHaveLength(count);
  });
});
