import { describe, expect, test } from "vitest";
import { OVERDUE_MAX_MS, RETRY_WAITS_SECONDS } from "../../../../src/contract/limits.ts";
import { moves } from "../../../../src/db/schema.ts";
import { LAST_END_MS } from "../../../../src/webhooks/dispatch/dispatch.ts";
import type { Target } from "../../../../src/webhooks/dispatch/pipeline.ts";
import type { Claimed } from "../../../../src/webhooks/dispatch/settle-and-claim.ts";
import type { Draft } from "../../../../src/webhooks/outbox.ts";
import {
  announceLeads,
  answered,
  claimedOf,
  createWorkspace,
  db,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  FIRST_WAIT_MS,
  failAtTrip,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

describe("a dispatch", () => {
  test("posts what is due and settles it as delivered, with the response", async () => {
    const { id, drafts } = await owed(1, NOW);
    const posted: [Claimed, Target][] = [];
    await dispatchAt(NOW, [id], async (delivery, target) => {
      posted.push([delivery, { ...target }]);
      return answered(202);
    });
    const { url, sealedSecret, workspaceId } = await subscriptionRow(id);
    expect(posted).toEqual([
      [
        claimedOf(id, drafts[0] as Draft, NOW),
        expect.objectContaining({ workspaceId, url, sealedSecret }),
      ],
    ]);
    const outcome = { lastOutcome: "answered", lastStatus: 202, settledAt: NOW };
    expect(await deliveryTo(id)).toMatchObject({ ...outcome, state: "delivered", attempts: 1 });
  });

  test("does not post what is not due yet", async () => {
    const { id } = await owed(1, NOW);
    const { posts, attempt } = subscriber();
    const subscription = { subscriptionId: id, dueAt: NOW, leasedElsewhereUntil: null };
    const ended = await dispatchAt(NOW - 1, [id], attempt);
    expect(ended).toMatchObject([{ subscription, wasLeased: false }]);
    expect(posts).toEqual([]);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", dueAt: NOW });
    expect(await subscriptionRow(id)).toMatchObject({ heldBy: null, heldUntil: 0 });
  });

  test("never posts again what is delivered, exhausted or cancelled", async () => {
    const { id, drafts } = await owed(3, NOW);
    const states = ["delivered", "exhausted", "cancelled"] as const;
    for (const [i, state] of states.entries()) await setDeliveries(id, { state }, drafts[i]?.id);
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW + 365 * 24 * HOUR_MS, [id], attempt);
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ delivered: 1, exhausted: 1, cancelled: 1 });
  });

  test("takes a delivery through the whole ladder, then it is exhausted", async () => {
    const { id } = await owed(1, NOW);
    const waits: number[] = [];
    const { posts, attempt } = subscriber(() => answered(500));
    let now = NOW;
    for (let n = 1; n <= RETRY_WAITS_SECONDS.length + 1; n++) {
      await dispatchAt(now, [id], attempt);
      const { dueAt, attempts, state, lastStatus } = await deliveryTo(id);
      expect([attempts, lastStatus]).toEqual([n, 500]);
      if (state === "pending") {
        waits.push((dueAt - now) / 1000);
        expect(await subscriptionRow(id)).toMatchObject({ backoff: n, nextAt: dueAt });
      }
      now = dueAt;
      // Disabling would end the test here; it has its own tests.
      await setSubscription(id, { failures: 0 });
    }
    expect(waits).toEqual(RETRY_WAITS_SECONDS);
    expect(posts).toHaveLength(RETRY_WAITS_SECONDS.length + 1);
    const exhausted = { state: "exhausted", settledAt: now, attempts: posts.length };
    expect(await deliveryTo(id)).toMatchObject(exhausted);
    await dispatchAt(now + HOUR_MS, [id], attempt);
    expect(posts).toHaveLength(RETRY_WAITS_SECONDS.length + 1);
  });

  test("does not post what has been due for a week: it is exhausted", async () => {
    const { id, drafts } = await owed(2, NOW);
    const later = NOW + OVERDUE_MAX_MS;
    const recent = drafts[1]?.id;
    await setDeliveries(id, { dueAt: later }, recent);
    const { posts, attempt } = subscriber();
    await dispatchAt(later, [id], attempt);
    expect(posts).toEqual([recent]);
    expect(await statesOf(id)).toEqual({ exhausted: 1, delivered: 1 });
  });

  test("leases nothing of a workspace that drains, so that it can be closed", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await db
      .insert(moves)
      .values({ workspaceId, state: "draining", moveId: "m", other: "DB_2", since: NOW });
    const { posts, attempt } = subscriber();
    const { DB, trips } = observedDatabase();
    const [finished] = await dispatchOn(DB, NOW, [id], attempt);
    expect(posts).toEqual([]);
    expect(trips).toHaveLength(1);
    expect(finished).toMatchObject({ subscription: { mayPost: false, claimed: false } });
  });

  test.each([
    ["draining", { exhausted: 1 }, 2],
    ["closed", { pending: 1 }, 1],
  ] as const)(
    "posts nothing while its workspace is %s, and asks for no other to do so",
    async (state, left, roundTrips) => {
      const { id, workspaceId } = await owed(1, NOW);
      await db.insert(moves).values({ workspaceId, state, moveId: "m", other: "DB_2", since: NOW });
      const { DB, trips } = observedDatabase();
      const { posts, attempt } = subscriber();
      const finished = await dispatchOn(DB, NOW + OVERDUE_MAX_MS, [id], attempt);
      expect(posts).toEqual([]);
      expect(trips).toHaveLength(roundTrips);
      expect(finished).toMatchObject([{ subscription: { cleanable: false } }]);
      expect(await statesOf(id)).toEqual(left);
    },
  );

  test.each([
    [1, 1, 2],
    [1, 20, 2],
    [3, 1, 2],
    [20, 1, 2],
    // If as many were found as were asked for, there may be more: it asks once more.
    [20, 20, 3],
    [1, 400, 3],
  ])("to %i subscribers with %i events each makes %i round trips to D1", async (...figures) => {
    const [subscribers, events, roundTrips] = figures;
    const workspaceId = await createWorkspace();
    const ids = await Promise.all(
      Array.from({ length: subscribers }, async () => (await subscribe(workspaceId)).id),
    );
    await announceLeads(workspaceId, events, NOW);
    const { DB, trips } = observedDatabase();
    const { posts, attempt } = subscriber();
    await dispatchOn(DB, NOW, ids, attempt);
    expect(posts).toHaveLength(subscribers * events);
    expect(trips).toHaveLength(roundTrips);
  });

  test("probes with two round trips, even if more is due", async () => {
    const { id } = await owed(20, NOW);
    await setSubscription(id, { backoff: 3 });
    const { DB, trips } = observedDatabase();
    const { posts, attempt } = subscriber(async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      return answered(500);
    });
    await dispatchOn(DB, NOW, [id], attempt, "slow");
    expect(posts).toHaveLength(1);
    expect(trips).toHaveLength(2);
  });

  test("makes no second round trip when nothing is due", async () => {
    const { id } = await owed(1, NOW);
    const { DB, trips } = observedDatabase();
    await dispatchOn(DB, NOW - 1, [id], subscriber().attempt);
    expect(trips).toHaveLength(1);
  });

  test("posts the longest due first, and continues until nothing is due", async () => {
    const { id, workspaceId, drafts: late } = await owed(2, NOW + 1000);
    const early = await announceLeads(workspaceId, 150, NOW);
    const later = await announceLeads(workspaceId, 1, NOW + 3000);
    const { posts, attempt } = subscriber();
    const ended = await dispatchAt(NOW + 2000, [id], attempt);
    expect(posts).toHaveLength(152);
    const ids = (drafts: typeof late) => drafts.map((draft) => draft.id).toSorted();
    expect(posts.slice(0, 150).toSorted()).toEqual(ids(early));
    expect(posts.slice(150).toSorted()).toEqual(ids(late));
    expect(await statesOf(id)).toEqual({ delivered: 152, pending: 1 });
    expect(later).toHaveLength(1);
    expect(ended).toMatchObject([
      { wasLeased: true, subscription: { dueAt: NOW + 3000, leasedElsewhereUntil: null } },
    ]);
  });

  test("posts what became due while it ran", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const { posts, attempt } = subscriber(async () => {
      if (posts.length === 1) await announceLeads(workspaceId, 2, NOW);
      return OK;
    });
    expect(await dispatchAt(NOW, [id], attempt)).toMatchObject([{ subscription: { dueAt: null } }]);
    expect(await statesOf(id)).toEqual({ delivered: 3 });
  });

  test("posts its claims once if the reply to the claim is lost", async () => {
    const { id } = await owed(5, NOW);
    const { DB } = observedDatabase({
      after: failAtTrip(1),
    });
    const { posts, attempt } = subscriber();
    await dispatchOn(DB, NOW, [id], attempt);
    expect(posts).toHaveLength(5);
    expect(await statesOf(id)).toEqual({ delivered: 5 });
  });

  test("has six concurrent posts if it serves one subscription, and five if it serves several", async () => {
    const { id } = await owed(30, NOW);
    await setSubscription(id, { postsAtOnce: 6 });
    const workspaces = [await createWorkspace(), await createWorkspace()];
    const ids: string[] = [];
    for (const workspaceId of workspaces) {
      for (let i = 0; i < 4; i++) ids.push((await subscribe(workspaceId)).id);
      await announceLeads(workspaceId, 8, NOW);
    }
    let [underWay, most] = [0, 0];
    const { posts, attempt } = subscriber(async () => {
      most = Math.max(most, ++underWay);
      await new Promise((resolve) => setTimeout(resolve, 5));
      underWay--;
      return OK;
    });
    await dispatchAt(NOW, ids, attempt);
    expect(posts).toHaveLength(64);
    expect(most).toBe(5);
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(94);
    expect(most).toBe(6);
  });

  test("claims at most six at a time in the slow lane, where each may take long", async () => {
    const { id } = await owed(20, NOW);
    await setSubscription(id, { slow: true });
    const { DB, trips } = observedDatabase();
    const tripsBefore: number[] = [];
    let now = NOW;
    await dispatchOn(
      DB,
      () => now,
      [id],
      async () => {
        tripsBefore.push(trips.length);
        // Slow enough to stay in its lane.
        now += 2_000;
        return OK;
      },
      "slow",
    );
    const firstClaim = tripsBefore.filter((count) => count === 1).length;
    expect(firstClaim).toBeGreaterThan(0);
    expect(firstClaim).toBeLessThanOrEqual(6);
  });

  test("starts no post after 12 s, and releases the rest", async () => {
    const workspaceId = await createWorkspace();
    const ids = await Promise.all(
      Array.from({ length: 4 }, async () => (await subscribe(workspaceId)).id),
    );
    await announceLeads(workspaceId, 5, NOW);
    let now = NOW;
    const { posts, attempt } = subscriber(() => {
      now = NOW + 12_000;
      return OK;
    });
    const ended = await dispatchAt(() => now, ids, attempt);
    // Those already started when the time was up.
    expect(posts.length).toBeLessThanOrEqual(6);
    const rows = (await Promise.all(ids.map(deliveriesTo))).flat();
    const left = rows.filter(({ state }) => state === "pending");
    expect(left).toHaveLength(20 - posts.length);
    for (const row of left)
      expect(row).toMatchObject({ attempts: 0, lastOutcome: null, dueAt: NOW });
    expect(ended).toHaveLength(4);
    for (const { subscription } of ended)
      expect(subscription).toMatchObject({ leasedElsewhereUntil: null, dueAt: NOW });
    for (const id of ids) expect(await subscriptionRow(id)).toMatchObject({ heldUntil: 0 });
  });

  test("ends early enough for the runtime's 30 s, even if its last post times out", () => {
    expect(LAST_END_MS).toBeLessThanOrEqual(25_000);
  });

  test("settles what it posted even if the clock has jumped back by an hour", async () => {
    const { id } = await owed(2, NOW);
    await setSubscription(id, { postsAtOnce: 2 });
    let now = NOW;
    const { posts, attempt } = subscriber(() => {
      // Once both posts have started: after the jump, none would start.
      if (posts.length === 2) now = NOW - HOUR_MS;
      return OK;
    });
    await dispatchAt(() => now, [id], attempt);
    expect(posts).toHaveLength(2);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });
});

describe("a failure", () => {
  test("at one post at a time ends the turn, and releases the rest without counting an attempt", async () => {
    const { id } = await owed(10, NOW);
    const { posts, attempt } = subscriber(() => answered(500));
    const ended = await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(1);
    for (const row of await deliveriesTo(id)) {
      const tried = posts.includes(row.eventId);
      expect(row).toMatchObject({
        state: "pending",
        attempts: tried ? 1 : 0,
        dueAt: tried ? NOW + FIRST_WAIT_MS : NOW,
        lastStatus: tried ? 500 : null,
      });
    }
    const pace = { backoff: 1, nextAt: NOW + FIRST_WAIT_MS };
    const subscription = { ...pace, dueAt: NOW, leasedElsewhereUntil: null };
    expect(ended).toMatchObject([{ wasLeased: true, subscription }]);
    const health = { failures: 1, failingSince: NOW, disabledAt: null, heldUntil: 0 };
    expect(await subscriptionRow(id)).toMatchObject({ ...pace, ...health });
  });

  test("halves the concurrent posts, and the turn continues", async () => {
    const { id } = await owed(20, NOW);
    let answers = 0;
    const { posts, attempt } = subscriber(() => (++answers === 8 ? answered(503) : OK));
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(20);
    expect(await statesOf(id)).toEqual({ delivered: 19, pending: 1 });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, backoff: 0, nextAt: 0 });
  });

  test("keeps what was acknowledged before it, and counts later failures", async () => {
    const { id } = await owed(20, NOW);
    await setSubscription(id, { postsAtOnce: 3 });
    let answers = 0;
    const { posts, attempt } = subscriber(() => (++answers > 5 ? answered(503) : OK));
    await dispatchAt(NOW, [id], attempt);
    expect(posts.length).toBeLessThan(14);
    expect(await statesOf(id)).toEqual({ delivered: 5, pending: 15 });
    expect((await deliveriesTo(id)).filter(({ attempts }) => attempts > 0)).toHaveLength(
      posts.length,
    );
    expect(await subscriptionRow(id)).toMatchObject({ failures: posts.length - 5 });
  });

  test("ends no other turn", async () => {
    const workspaceId = await createWorkspace();
    const [bad, good] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    await announceLeads(workspaceId, 10, NOW);
    const { attempt } = subscriber(({ subscriptionId }) =>
      subscriptionId === bad.id ? { kind: "timed_out" } : OK,
    );
    const ended = await dispatchAt(NOW, [bad.id, good.id], attempt);
    expect(await statesOf(good.id)).toEqual({ delivered: 10 });
    expect(await statesOf(bad.id)).toEqual({ pending: 10 });
    const found = (id: string) => ended.find(({ subscription: s }) => s.subscriptionId === id);
    expect(found(bad.id)?.subscription).toMatchObject({ backoff: 1, dueAt: NOW });
    expect(found(good.id)?.subscription).toMatchObject({ backoff: 0, dueAt: null });
  });

  test.each([1, 3])(
    "is not the subscriber's if none of %i could be tried: it waits 5 minutes, uncounted",
    async (count) => {
      const { id } = await owed(count, NOW);
      let tries = 0;
      const ended = await dispatchAt(NOW, [id], async () => {
        tries++;
        throw new Error("no encryption key");
      });
      expect(tries).toBe(1);
      const untried = { attempts: 0, lastOutcome: null, lastStatus: null };
      for (const row of await deliveriesTo(id))
        expect(row).toMatchObject({ ...untried, state: "pending", dueAt: NOW });
      const nextAt = NOW + 5 * MINUTE_MS;
      const health = { failures: 0, failingSince: null, backoff: 0, heldUntil: 0 };
      expect(await subscriptionRow(id)).toMatchObject({ ...health, nextAt });
      expect(ended).toMatchObject([{ wasLeased: true, subscription: { nextAt } }]);
      const { posts, attempt } = subscriber();
      await dispatchAt(nextAt - 1, [id], attempt);
      expect(posts).toEqual([]);
      await dispatchAt(nextAt, [id], attempt);
      expect(posts).toHaveLength(count);
    },
  );
});
