import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { openDatabase } from "../../src/db/client.ts";
import { deliveries, subscriptions } from "../../src/db/schema.ts";
import { runDeliveries } from "../../src/delivery/run.ts";
import type { Claimed } from "../../src/model/deliveries.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  deliveriesTo,
  deliveryTo,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  runAt,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

const beforePosts = async () => {};

describe("a run", () => {
  test("posts what is due and settles it as delivered, with the answer", async () => {
    const { id, drafts } = await owed(1, NOW);
    const claimed: Claimed[] = [];
    await runAt(NOW, [id], async (delivery) => {
      claimed.push(delivery);
      return answered(202);
    });
    const { url, sealedSecret } = await subscriptionRow(id);
    const [draft] = drafts;
    expect(claimed).toEqual([
      { eventId: draft?.id, subscriptionId: id, attempts: 0, url, sealedSecret, body: draft?.body },
    ]);
    expect(await deliveryTo(id)).toMatchObject({
      state: "delivered",
      attempts: 1,
      claim: null,
      lastOutcome: "answered",
      lastStatus: 202,
      settledAt: NOW,
    });
  });

  test("leaves alone what is not due yet", async () => {
    const { id } = await owed(1, NOW);
    const { posts, attempt } = subscriber();
    expect(await runAt(NOW - 1, [id], attempt)).toEqual([]);
    expect(posts).toEqual([]);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", dueAt: NOW, claim: null });
  });

  test("never posts again what is delivered, exhausted or cancelled", async () => {
    const { id, drafts } = await owed(3, NOW);
    const states = ["delivered", "exhausted", "cancelled"] as const;
    for (const [i, state] of states.entries())
      await db.update(deliveries).set({ state }).where(sql`event_id = ${drafts[i]?.id}`);
    const { posts, attempt } = subscriber();
    await runAt(NOW + 365 * 24 * HOUR_MS, [id], attempt);
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ delivered: 1, exhausted: 1, cancelled: 1 });
  });

  test("takes a delivery down the whole ladder: 11 attempts, then it is exhausted", async () => {
    const { id } = await owed(1, NOW);
    const waits: number[] = [];
    const { posts, attempt } = subscriber(() => answered(500));
    let now = NOW;
    for (let n = 1; n <= 11; n++) {
      await runAt(now, [id], attempt);
      const { dueAt, attempts, state, lastStatus } = await deliveryTo(id);
      expect([attempts, lastStatus]).toEqual([n, 500]);
      if (state === "pending") waits.push((dueAt - now) / 1000);
      now = dueAt;
      // Disabling would end it here: it has its own tests.
      await db.update(subscriptions).set({ failures: 0 }).where(sql`id = ${id}`);
    }
    expect(waits).toEqual([10, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]);
    expect(posts).toHaveLength(11);
    expect(await deliveryTo(id)).toMatchObject({
      state: "exhausted",
      settledAt: now,
      attempts: 11,
    });
    await runAt(now + HOUR_MS, [id], attempt);
    expect(posts).toHaveLength(11);
  });

  test("makes one claim and one settle round trip to D1, however many deliveries", async () => {
    for (const [subscribers, events] of [
      [1, 1],
      [3, 1],
      [20, 5],
    ] as const) {
      const workspaceId = await createWorkspace();
      const ids = await Promise.all(
        Array.from({ length: subscribers }, async () => (await subscribe(workspaceId)).id),
      );
      await announceLeads(workspaceId, events, NOW);
      const { DB, trips } = observedDatabase();
      const { posts, attempt } = subscriber();
      const tools = { now: () => NOW, random: () => 0.5, beforePosts, attempt };
      await runDeliveries(openDatabase(DB), ids, 5, tools);
      expect(posts).toHaveLength(subscribers * events);
      expect(trips).toHaveLength(2);
    }
  });

  test("makes no second round trip when nothing is due", async () => {
    const { id } = await owed(1, NOW);
    const { DB, trips } = observedDatabase();
    const tools = {
      now: () => NOW - 1,
      random: () => 0.5,
      beforePosts,
      attempt: subscriber().attempt,
    };
    expect(await runDeliveries(openDatabase(DB), [id], 5, tools)).toEqual([]);
    expect(trips).toHaveLength(1);
  });

  test("delivers at most the quota to each subscription, the longest due first", async () => {
    const workspaceId = await createWorkspace();
    const ids = [(await subscribe(workspaceId)).id, (await subscribe(workspaceId)).id];
    const late = await announceLeads(workspaceId, 2, NOW + 1000);
    const early = await announceLeads(workspaceId, 3, NOW);
    const { posts, attempt } = subscriber();
    const next = await runAt(NOW + 2000, ids, attempt, 3);
    expect(posts.toSorted()).toEqual([...early, ...early].map((draft) => draft.id).toSorted());
    expect(next).toHaveLength(2);
    for (const id of ids) {
      expect(next).toContainEqual({ subscriptionId: id, failing: 0, dueAt: NOW + 1000 });
      expect(await statesOf(id)).toEqual({ delivered: 3, pending: 2 });
    }
    expect(await runAt(NOW + 2000, ids, attempt, 3)).toEqual(
      expect.arrayContaining(ids.map((id) => ({ subscriptionId: id, failing: 0, dueAt: null }))),
    );
    expect(posts.slice(6).toSorted()).toEqual([...late, ...late].map(({ id }) => id).toSorted());
  });

  test("keeps to the quota when the reply to its claim is lost", async () => {
    const { id } = await owed(5, NOW);
    const { DB } = observedDatabase({
      after: (trip) => {
        if (trip === 1) throw new Error("D1_ERROR: Network connection lost.");
      },
    });
    const { posts, attempt } = subscriber();
    const tools = { now: () => NOW, random: () => 0.5, beforePosts, attempt };
    await runDeliveries(openDatabase(DB), [id], 2, tools);
    expect(posts).toHaveLength(2);
  });

  test("has six posts under way at once, and three to one subscription", async () => {
    const workspaceId = await createWorkspace();
    const ids = await Promise.all(
      Array.from({ length: 4 }, async () => (await subscribe(workspaceId)).id),
    );
    await announceLeads(workspaceId, 8, NOW);
    const underWay: string[] = [];
    let [most, mostToOne] = [0, 0];
    const { posts, attempt } = subscriber(async ({ subscriptionId }) => {
      underWay.push(subscriptionId);
      most = Math.max(most, underWay.length);
      const toOne = underWay.filter((id) => id === subscriptionId).length;
      mostToOne = Math.max(mostToOne, toOne);
      await new Promise((resolve) => setTimeout(resolve, 5));
      underWay.splice(underWay.indexOf(subscriptionId), 1);
      return OK;
    });
    await runAt(NOW, ids, attempt);
    expect(posts).toHaveLength(32);
    expect(most).toBe(6);
    expect(mostToOne).toBe(3);
  });

  test("starts no post after 30 s, so that none outlives its lease; the rest is given back", async () => {
    const workspaceId = await createWorkspace();
    const ids = await Promise.all(
      Array.from({ length: 4 }, async () => (await subscribe(workspaceId)).id),
    );
    await announceLeads(workspaceId, 5, NOW);
    let now = NOW;
    const { posts, attempt } = subscriber(() => {
      now = NOW + 30_000;
      return OK;
    });
    await runDeliveries(db, ids, 100, { now: () => now, random: () => 0.5, beforePosts, attempt });
    // Those that had a slot when the time was up; the others were waiting for one.
    expect(posts.length).toBeLessThanOrEqual(6);
    const rows = (await Promise.all(ids.map(deliveriesTo))).flat();
    const left = rows.filter(({ state }) => state === "pending");
    expect(left).toHaveLength(20 - posts.length);
    for (const row of left)
      expect(row).toMatchObject({ attempts: 0, claim: null, lastOutcome: null, dueAt: now });
  });

  test("settles what it posted, though the clock has jumped back by an hour", async () => {
    const { id } = await owed(2, NOW);
    let now = NOW;
    const { posts, attempt } = subscriber(() => {
      // Once both posts have begun: from then on none would be.
      if (posts.length === 2) now = NOW - HOUR_MS;
      return OK;
    });
    await runDeliveries(db, [id], 100, { now: () => now, random: () => 0.5, beforePosts, attempt });
    expect(posts).toHaveLength(2);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });
});

describe("the first failure of a turn", () => {
  test("stops it, and gives the rest back without counting an attempt", async () => {
    const { id } = await owed(10, NOW);
    const { posts, attempt } = subscriber(() => answered(500));
    const next = await runAt(NOW, [id], attempt);
    expect(posts.length).toBeGreaterThan(0);
    expect(posts.length).toBeLessThanOrEqual(3);
    for (const row of await deliveriesTo(id)) {
      const tried = posts.includes(row.eventId);
      expect(row).toMatchObject({
        state: "pending",
        claim: null,
        attempts: tried ? 1 : 0,
        dueAt: tried ? NOW + 10_000 : NOW,
        lastStatus: tried ? 500 : null,
      });
    }
    expect(next).toEqual([{ subscriptionId: id, failing: 1, dueAt: NOW }]);
    expect(await subscriptionRow(id)).toMatchObject({
      failures: posts.length,
      failingSince: NOW,
      disabledAt: null,
    });
  });

  test("keeps what was acknowledged before it, and counts what fails after", async () => {
    const { id } = await owed(20, NOW);
    let answers = 0;
    const { posts, attempt } = subscriber(() => (++answers === 8 ? answered(503) : OK));
    await runAt(NOW, [id], attempt);
    expect(posts.length).toBeLessThan(12);
    expect(await statesOf(id)).toEqual({
      delivered: posts.length - 1,
      pending: 20 - posts.length + 1,
    });
    expect((await deliveriesTo(id)).filter(({ attempts }) => attempts > 0)).toHaveLength(
      posts.length,
    );
  });

  test("stops nobody else's turn", async () => {
    const workspaceId = await createWorkspace();
    const [bad, good] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    await announceLeads(workspaceId, 10, NOW);
    const { attempt } = subscriber(({ subscriptionId }) =>
      subscriptionId === bad.id ? { kind: "timed_out" } : OK,
    );
    const next = await runAt(NOW, [bad.id, good.id], attempt);
    expect(await statesOf(good.id)).toEqual({ delivered: 10 });
    expect(await statesOf(bad.id)).toEqual({ pending: 10 });
    expect(next).toContainEqual({ subscriptionId: bad.id, failing: 1, dueAt: NOW });
    expect(next).toContainEqual({ subscriptionId: good.id, failing: 0, dueAt: null });
  });

  test("is none of the subscriber's when it could not be tried: it waits 5 minutes, uncounted", async () => {
    const { id } = await owed(1, NOW);
    await runAt(NOW, [id], async () => {
      throw new Error("no encryption key");
    });
    expect(await deliveryTo(id)).toMatchObject({
      state: "pending",
      attempts: 0,
      claim: null,
      dueAt: NOW + 5 * MINUTE_MS,
      lastOutcome: null,
      lastStatus: null,
    });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
  });
});
