import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { describe, expect, test } from "vitest";
import { POST_TIMEOUT_MS } from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import { LEASE_MS } from "../../../src/delivery/round.ts";
import { DNS_BEFORE_POST_MS } from "../../../src/endpoints/resolve.ts";
import { Platform } from "../../../src/platform/entrypoint.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import { deleteSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { leadReport } from "../../support/api.ts";
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
  LINES,
  observedDatabase,
  owed,
  owedToMany,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

const LATER = NOW + LEASE_MS;
const RETRY_AT = LATER + FIRST_WAIT_MS;
const HEALTHY = { failures: 0, failingSince: null, blockedUntil: 0, concurrency: 2 };
const FAILING = { failures: 1, failingSince: LATER, blockedUntil: LATER + 1_000 };

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
    for (const now of [NOW, LATER - 1])
      expect(await dispatchAt(now, [id], attempt)).toMatchObject([
        // The holder looks for more before it releases it.
        { leasedElsewhereUntil: LATER },
      ]);
    await held.finish(OK);
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });

  test.each([
    // A second remains to record the outcome of the longest request.
    ["is left to expire rather than used for a request that may be recorded after it", 0, 1],
    ["is used for a request that is recorded before it ends, however long it takes", -1, 2],
  ])("%s", async (_, later, requests) => {
    const { id } = await owed(2, NOW);
    await setSubscription(id, { slow: true });
    let now = NOW;
    const { posts, attempt } = subscriber(() => {
      now = LATER - DNS_BEFORE_POST_MS - POST_TIMEOUT_MS - 1_000 + later;
      return OK;
    });
    await dispatchAt(() => now, [id], attempt);
    expect(posts).toHaveLength(requests);
  });

  test("is not shortened by a clock that is set back", async () => {
    const { id, workspaceId } = await owed(1, NOW - HOUR_MS);
    let now = NOW;
    const ends: number[] = [];
    await dispatchAt(
      () => now,
      [id],
      async () => {
        ends.push((await subscriptionRow(id)).leasedUntil);
        if (ends.length === 1) await announceLeads(workspaceId, 1, NOW - HOUR_MS);
        now = NOW - 5_000;
        return OK;
      },
    );
    expect(ends).toEqual([LATER, LATER]);
  });

  const SETTLED = { state: "delivered", lastStatus: 200, settledAt: LATER };
  const WAITING = { state: "pending", lastStatus: 503, dueAt: RETRY_AT };
  test.each([
    ["a failure", answered(500), OK, SETTLED, HEALTHY],
    ["a success", OK, answered(503), WAITING, FAILING],
  ])("that was lost settles nothing, neither delivery nor health, with %s", async (...row) => {
    const [, late, inTime, delivery, health] = row;
    const { id } = await owed(1, NOW);
    const lost = await heldDispatch(NOW, id);
    await dispatchAt(LATER, [id], inTime);
    await lost.finish(late);
    expect(await deliveryTo(id)).toMatchObject({ ...delivery, attempts: 1 });
    expect(await subscriptionRow(id)).toMatchObject(health);
  });

  test.each([OK, answered(500)])("that was lost disables nothing: late %j", async (outcome) => {
    const { id } = await owed(1, NOW);
    await setSubscription(id, { failures: 10, failingSince: NOW - 75 * HOUR_MS });
    const late = await heldDispatch(NOW, id);
    const inTime = await heldDispatch(LATER, id);
    await late.finish(outcome);
    await inTime.finish(OK);
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
    expect(await subscriptionRow(id)).toMatchObject({ ...HEALTHY, disabledAt: null });
  });

  test.each([
    ["succeeds", async () => OK],
    ["cannot be tried", () => Promise.reject(new Error("no encryption key"))],
  ])("whose subscription is gone ends with the post in progress, which %s", async (_, last) => {
    const { id, workspaceId } = await owed(5, NOW);
    await setSubscription(id, { concurrency: 2 });
    const noticed = Promise.withResolvers<void>();
    const { DB, trips } = observedDatabase({
      before: (trip) => {
        if (trip > 6) throw new Error("round trips without end");
      },
      after: (trip) => void (trip === 2 && noticed.resolve()),
    });
    let now = NOW;
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) {
        await noticed.promise;
        await sleep(10);
        return last();
      }
      // Cancelled and deleted by another dispatch after the lease expired.
      await commit(db, deleteSubscription(workspaceId, id, LATER));
      await dispatchAt(LATER, [id], OK);
      now += 1_600;
      return OK;
    });
    await dispatchOn(DB, () => now, [id], attempt);
    expect(posts).toHaveLength(2);
    expect(trips.length).toBeLessThanOrEqual(3);
    expect(await statesOf(id)).toEqual({ cancelled: 5 });
  });

  test.each([
    // Trip 2 records the only post, and finds nothing else to be due.
    ["is not released for an event committed just before", 2, {}, 3],
    ["is claimed again by a second try after a lost reply", 3, { after: failAtTrip(2) }, 4],
  ])("%s, if more is due by then", async (_, at, lost, roundTrips) => {
    const { id, workspaceId } = await owed(1, NOW);
    const { DB, trips } = observedDatabase({
      before: async (trip) => void (trip === at && (await announceLeads(workspaceId, 1, NOW))),
      ...lost,
    });
    await dispatchOn(DB, NOW, [id], OK);
    expect(trips).toHaveLength(roundTrips);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
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
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: LATER });
    const subscription = { leasedElsewhereUntil: LATER };
    expect(ended).toMatchObject([subscription]);
    await other?.finish(OK);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
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
    expect(rows.read).toBeLessThan(260 + 20 * LINES);
    expect(rows.written).toBeLessThan(20);
  });

  test.each([
    [1, 500, 19 + 0.1 * LINES, 3],
    [20, 25, 41 + 2 * LINES, 3],
  ])("to %i subscribers of %i events reads up to %d rows each, writes %i", async (...figures) => {
    const [subscribers, events, read, written] = figures;
    const ids = await owedToMany(subscribers, events, NOW);
    for (const id of ids) await setSubscription(id, { concurrency: 6 });
    const { DB, rows } = meteredDatabase();
    // On a busy machine, a dispatch may leave some to the next one, when its time or statements are used up.
    for (let dispatches = 0; dispatches < 3; dispatches++)
      await dispatchOn(DB, NOW, ids, () => sleep(2).then(() => OK));
    for (const id of ids) expect(await statesOf(id)).toEqual({ delivered: events });
    expect(rows.read / 500).toBeLessThan(read);
    expect(rows.written / 500).toBeLessThan(written);
  });
});

test("a single healthy delivery costs nine rows written from record to release, two of them for its lead", async () => {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  // The first delivery of a day makes the row of its counts.
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
  // The lease, the settlement, the counts of the day and the release.
  expect(rows.written).toBe(9);
});
