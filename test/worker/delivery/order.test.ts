import { eq } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { PROBE_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { attempts } from "../../../src/db/schema.ts";
import { PROBE_AT_LEAST_MS } from "../../../src/delivery/policy.ts";
import {
  announceLeads,
  answered,
  DAY_MS,
  db,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  FIRST_WAIT_MS,
  failAtTrip,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { storeEvents } from "../../support/stored-events.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
const REJECTED = answered(400);

describe("of the deliveries to a subscription", () => {
  test("those never tried go first, then what failed before or is sent again, however long due", async () => {
    const { workspaceId, id, drafts } = await owed(2, NOW - HOUR_MS);
    await dispatchAt(NOW - HOUR_MS, [id], REJECTED);
    const [missed = ""] = await storeEvents(workspaceId, id, 1, NOW - DAY_MS, "missed");
    await redeliver(id, { since: NOW - 2 * DAY_MS, until: null, states: ["missed"] }, NOW);
    const fresh = await announceLeads(workspaceId, 2, NOW + MINUTE_MS);
    await setSubscription(id, { rejectedUntil: 0 });
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW + MINUTE_MS, [id], attempt);
    const ids = [fresh, drafts].flatMap((some) => some.map((draft) => draft.id).toSorted());
    expect(posts).toEqual([...ids, missed]);
  });

  test("half are rejected at once, three in a row, and the others arrive at once", async () => {
    const { id, drafts } = await owed(60, NOW);
    // They are posted by their ids, which are random.
    const ids = drafts.map((draft) => draft.id).toSorted();
    let now = NOW;
    const { attempt } = subscriber(({ eventId }) => {
      now += 20;
      return ids.indexOf(eventId) % 6 < 3 ? REJECTED : OK;
    });
    while ((await statesOf(id)).delivered !== 30) {
      const [left] = await dispatchAt(() => now, [id], attempt);
      now = Math.max(now + 100, left?.readyAt ?? 0);
    }
    expect(now - NOW).toBeLessThan(MINUTE_MS);
    expect(await subscriptionRow(id)).toMatchObject({ nextAt: 0, slow: false });
  });

  test("those of a kind that is rejected are probed one at a time, and the others do not wait", async () => {
    const { workspaceId, id, drafts } = await owed(20, NOW);
    for (const draft of drafts) await setDeliveries(id, { type: "run.completed" }, draft.id);
    const { posts, attempt } = subscriber(({ type }) => (type === "lead.created" ? OK : REJECTED));
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(2);
    const { rejectedUntil } = await subscriptionRow(id);
    expect(rejectedUntil).toBe(NOW + 1000 * (PROBE_WAITS_SECONDS[1] ?? 0));
    await dispatchAt(rejectedUntil - 1, [id], attempt);
    expect(posts).toHaveLength(2);
    // However many it would take at once: a probe is one post.
    await setSubscription(id, { postsAtOnce: 6 });
    // The exchange that records the probe also gives the lease back: nothing may be claimed by the new pace.
    const { DB, trips } = observedDatabase();
    await dispatchOn(DB, rejectedUntil, [id], attempt);
    expect([posts.length, trips.length]).toEqual([3, 2]);
    await announceLeads(workspaceId, 10, NOW);
    await dispatchAt(rejectedUntil + 1, [id], attempt);
    expect((await statesOf(id)).delivered).toBe(10);
  });
});

describe("a delivery that is sent by hand", () => {
  test("is posted though its endpoint waits, and if it fails, nothing has changed", async () => {
    const { id, drafts } = await owed(2, NOW);
    await dispatchAt(NOW, [id], answered(503));
    const [eventId = "", other] = drafts.map((draft) => draft.id).toSorted();
    const { nextAt, backoff, failures } = await subscriptionRow(id);
    const { posts, attempt } = subscriber(() => answered(503));
    for (let click = 1; click <= 10; click++) {
      const now = NOW + click * 900;
      await redeliver(id, [eventId], now);
      await dispatchAt(now, [id], attempt);
      const row = (await deliveriesTo(id)).find((one) => one.eventId === eventId);
      expect(row).toMatchObject({ attempts: 1, dueAt: NOW + FIRST_WAIT_MS, lastAt: now });
      expect(await subscriptionRow(id)).toMatchObject({ nextAt, backoff, failures });
    }
    expect(posts).toEqual(Array(10).fill(eventId));
    // At its own turn, it climbs the ladder.
    await setDeliveries(id, { state: "cancelled" }, other);
    await dispatchAt(nextAt, [id], attempt);
    expect((await deliveriesTo(id))[0]).toMatchObject({ attempts: 2 });
  });

  test("is logged once if it fails, as at its own turn, though the reply to its exchange is lost", async () => {
    const { id, drafts } = await owed(1, NOW);
    const lossy = observedDatabase({ after: failAtTrip(2) });
    await dispatchOn(lossy.DB, NOW, [id], answered(503));
    await redeliver(id, [drafts[0]?.id ?? ""], NOW + 900);
    const { DB, trips } = observedDatabase({ after: failAtTrip(2) });
    await dispatchOn(DB, NOW + 900, [id], answered(503));
    expect(trips).toHaveLength(3);
    expect(await db.$count(attempts, eq(attempts.subscriptionId, id))).toBe(2);
  });

  test("ends the wait of its endpoint if it is accepted", async () => {
    const { id, drafts } = await owed(3, NOW);
    await dispatchAt(NOW, [id], answered(503));
    await redeliver(id, [drafts.map((draft) => draft.id).toSorted()[0] ?? ""], NOW + 1);
    for (let i = 0; i < 2; i++) await dispatchAt(NOW + 1, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 3 });
  });
});

describe("while different events fail", () => {
  /** Both events of a subscription have failed, and their next turn is hours away. */
  async function failing(status: number) {
    const { id } = await owed(2, NOW);
    for (const now of [NOW, NOW + FIRST_WAIT_MS]) await dispatchAt(now, [id], answered(status));
    await setSubscription(id, { backoff: 10 });
    await setDeliveries(id, { attempts: 7, dueAt: NOW + 10 * HOUR_MS });
    const { lastAttempt } = await subscriptionRow(id);
    return { id, probeAt: (lastAttempt?.at ?? 0) + PROBE_AT_LEAST_MS };
  }

  test.each([500, 503])(
    "with %i, one is tried each half hour, which does not count",
    async (status) => {
      const { id, probeAt } = await failing(status);
      const { posts, attempt } = subscriber(() => answered(status));
      await dispatchAt(probeAt - 1, [id], attempt);
      expect(posts).toEqual([]);
      await dispatchAt(probeAt, [id], attempt);
      expect(posts).toHaveLength(1);
      const unchanged = { attempts: 7, dueAt: NOW + 10 * HOUR_MS };
      expect(await deliveriesTo(id)).toMatchObject([unchanged, unchanged]);
    },
  );

  test.each([500, 503])("with %i, all are tried again once one succeeds", async (status) => {
    const { id, probeAt } = await failing(status);
    for (let i = 0; i < 2; i++) await dispatchAt(probeAt + i, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });
});
