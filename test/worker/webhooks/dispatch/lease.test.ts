import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { describe, expect, test } from "vitest";
import { commit } from "../../../../src/db/client.ts";
import { Platform } from "../../../../src/platform/entrypoint.ts";
import { sleep } from "../../../../src/timing.ts";
import { extendLease } from "../../../../src/webhooks/dispatch/lease.ts";
import { deleteSubscription } from "../../../../src/webhooks/subscriptions.ts";
import { leadReport } from "../../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  FIRST_WAIT_MS,
  failAtTrip,
  HOUR_MS,
  heldDispatch,
  isolated,
  noticesOf,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscribeMany,
  subscriber,
  subscriptionRow,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

const LEASE_MS = 20_000;
const LATER = NOW + LEASE_MS;
const RETRY_AT = LATER + FIRST_WAIT_MS;
const HEALTHY = { failures: 0, failingSince: null, backoff: 0, nextAt: 0, postsAtOnce: 2 };
const FAILING = { failures: 1, failingSince: LATER, backoff: 1, nextAt: RETRY_AT };

describe("a lease", () => {
  test("lasts 20 s, during which no other dispatch posts to the subscription", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const { posts, attempt } = subscriber();
    let answers = 0;
    await dispatchAt(NOW, [id], async () => {
      if (++answers > 1) return OK;
      const { heldBy, heldUntil } = await subscriptionRow(id);
      expect(heldUntil).toBe(NOW + LEASE_MS);
      expect(heldBy).not.toBeNull();
      await announceLeads(workspaceId, 1, NOW);
      for (const now of [NOW, NOW + LEASE_MS - 1]) {
        // The holder looks for more before it releases it.
        const subscription = { leasedElsewhereUntil: LATER };
        const ended = await dispatchAt(now, [id], attempt);
        expect(ended).toMatchObject([{ wasLeased: false, subscription }]);
      }
      return OK;
    });
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });

  const SETTLED = { state: "delivered", lastStatus: 200, settledAt: LATER };
  const WAITING = { state: "pending", lastStatus: 503, dueAt: RETRY_AT };
  test.each([
    ["a failure", answered(500), OK, SETTLED, HEALTHY],
    ["a success", OK, answered(503), WAITING, FAILING],
  ])("that was lost settles nothing, neither delivery nor health, with %s", async (...row) => {
    const [, late, inTime, delivery, health] = row;
    const { id } = await owed(1, NOW);
    await dispatchAt(NOW, [id], async () => {
      await dispatchAt(LATER, [id], inTime);
      return late;
    });
    expect(await deliveryTo(id)).toMatchObject({ ...delivery, attempts: 1 });
    expect(await subscriptionRow(id)).toMatchObject(health);
  });

  test.each([
    ["succeeded, too", OK],
    ["failed", answered(500)],
  ])("that was lost disables nothing if the new holder succeeds: it %s", async (_, outcome) => {
    const { id } = await owed(1, NOW);
    await setSubscription(id, { failures: 10, failingSince: NOW - 75 * HOUR_MS });
    const late = await heldDispatch(NOW, id);
    const inTime = await heldDispatch(LATER, id);
    await late.finish(outcome);
    await inTime.finish(OK);
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
    expect(await subscriptionRow(id)).toMatchObject({ ...HEALTHY, disabledAt: null });
    expect(await noticesOf(id)).toEqual([]);
  });

  test.each([
    ["succeeds", async () => OK],
    ["cannot be tried", () => Promise.reject(new Error("no encryption key"))],
  ])(
    "whose subscription is gone ends with the last post in progress, which %s",
    async (_, last) => {
      const { id, workspaceId } = await owed(5, NOW);
      await setSubscription(id, { postsAtOnce: 2 });
      const { DB, trips } = observedDatabase({
        before: (trip) => {
          if (trip > 6) throw new Error("round trips without end");
        },
      });
      let now = NOW;
      const { posts, attempt } = subscriber(async () => {
        if (posts.length > 1) {
          await expect.poll(() => trips.length).toBe(2);
          await sleep(50);
          return last();
        }
        // Cancelled and deleted by another dispatch after the lease expired.
        await commit(db, deleteSubscription(workspaceId, id, NOW + LEASE_MS));
        now += 1_600;
        return OK;
      });
      await dispatchOn(DB, () => now, [id], attempt);
      expect(posts).toHaveLength(2);
      expect(trips.length).toBeLessThanOrEqual(3);
      expect(await statesOf(id)).toEqual({ cancelled: 5 });
    },
  );

  test.each([0, 1, 50, 2_000])(
    "does not come back for an event %i ms older than what it delivered, committed only now",
    async (olderByMs) => {
      const { id, workspaceId } = await owed(1, NOW);
      await dispatchAt(NOW, [id], OK);
      await announceLeads(workspaceId, 1, NOW - olderByMs);
      await dispatchAt(NOW + 1, [id], OK);
      expect(await statesOf(id)).toEqual({ delivered: 2 });
    },
  );

  test("is not released for an event committed just before", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const { DB, trips } = observedDatabase({
      // It records the only post, and finds nothing else to be due.
      before: async (trip) => void (trip === 2 && (await announceLeads(workspaceId, 1, NOW))),
    });
    await dispatchOn(DB, NOW, [id], OK);
    expect(trips).toHaveLength(3);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });

  test("of another dispatch is not released by a second try after a lost reply", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    let other: Awaited<ReturnType<typeof heldDispatch>> | undefined;
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip !== 3) return;
        // Between the two tries: the first one has released it.
        await announceLeads(workspaceId, 1, NOW);
        other = await heldDispatch(NOW, id);
      },
      after: failAtTrip(2),
    });
    const ended = await dispatchOn(DB, NOW, [id], OK);
    expect(await subscriptionRow(id)).toMatchObject({ heldUntil: NOW + LEASE_MS });
    const subscription = { leasedElsewhereUntil: LATER };
    expect(ended).toMatchObject([{ wasLeased: true, subscription }]);
    await other?.finish(OK);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(await subscriptionRow(id)).toMatchObject({ heldUntil: 0 });
  });

  test("is claimed again by a second try after a lost reply, if more is due by then", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 3 && (await announceLeads(workspaceId, 1, NOW))),
      after: failAtTrip(2),
    });
    await dispatchOn(DB, NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(await subscriptionRow(id)).toMatchObject({ heldUntil: 0 });
  });

  test("ends later with each claim, even if the clock stands still or goes back", () => {
    const first = extendLease(NOW, { holder: "dispatch", until: 0 });
    const second = extendLease(NOW, first);
    expect(first.until).toBe(NOW + LEASE_MS);
    expect(second.until).toBe(first.until + 1);
    expect(extendLease(NOW - 5_000, second).until).toBe(second.until + 1);
    expect(extendLease(NOW + 5_000, second).until).toBe(NOW + 5_000 + LEASE_MS);
  });
});

describe("a dispatch", () => {
  test("next to 5,000 settled deliveries reads only what is pending, and writes only what it does", async () => {
    const { id, workspaceId } = await owed(5_000, NOW);
    await setDeliveries(id, { state: "delivered", settledAt: NOW });
    await announceLeads(workspaceId, 10, NOW);
    const { DB, rows } = meteredDatabase();
    await dispatchOn(DB, NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 5_010 });
    expect(rows.read).toBeLessThan(500);
    expect(rows.written).toBeLessThan(20);
  });

  test("of 1,000 deliveries reads a few rows for each, however many are waiting or in progress", async () => {
    const { id } = await owed(1_000, NOW);
    await setSubscription(id, { postsAtOnce: 6 });
    const { DB, rows } = meteredDatabase();
    await dispatchOn(DB, NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 1_000 });
    expect(rows.read / 1_000).toBeLessThan(20);
  });

  test("to 20 subscriptions with 50 deliveries each reads a few rows per delivery, and writes two or three", async () => {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, 20);
    for (const id of ids) await setSubscription(id, { postsAtOnce: 6 });
    await announceLeads(workspaceId, 50, NOW);
    const { DB, rows } = meteredDatabase();
    await dispatchOn(DB, NOW, ids, () => sleep(2).then(() => OK));
    for (const id of ids) expect(await statesOf(id)).toEqual({ delivered: 50 });
    expect(rows.read / 1_000).toBeLessThan(60);
    expect(rows.written / 1_000).toBeLessThan(3);
  });
});

describe("a single healthy delivery", () => {
  test("costs eight rows written from record to release, two of them for its lead", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await setSubscription(id, { postsAtOnce: 6 });
    const { DB, rows } = meteredDatabase();
    const context = createExecutionContext();
    const platform = new Platform(context, isolated({ DB }).env);
    await platform.recordLeads({ workspaceId, leads: [leadReport("lead-1")] });
    // The lead, its event and its delivery, and an index entry for the lead and the delivery.
    expect(rows.written).toBe(5);
    // The audit trail notes the call, later.
    await waitOnExecutionContext(context);
    rows.written = 5;
    const now = Date.now() + 1;
    await dispatchOn(DB, now, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
    // The lease, the settlement and the release.
    expect(rows.written).toBe(8);
  });
});
