import { exports } from "cloudflare:workers";
import { eq } from "drizzle-orm";
import { afterEach, describe, expect, test } from "vitest";
import { isoTime } from "../../../../src/contract/time.ts";
import { commit, openDatabase } from "../../../../src/db/client.ts";
import { events, subscriptions } from "../../../../src/db/schema.ts";
import {
  type Range,
  REDELIVERY_AHEAD_MS,
  REDELIVERY_EXAMINED_MAX,
  REDELIVERY_RANGES_MAX,
  takeSteps,
  tooManyRanges,
} from "../../../../src/webhooks/redelivery/ranges.ts";
import { enableAgain, redeliverAgain } from "../../../../src/webhooks/redelivery/redelivery.ts";
import { disableSubscription } from "../../../../src/webhooks/subscriptions.ts";
import { errorOf } from "../../../support/api.ts";
import {
  answered,
  DAY_MS,
  db,
  deliveriesTo,
  dispatchAt,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  redeliver,
  scheduleOf,
  setDeliveries,
  setSubscription,
  statesOf,
  subscriptionRow,
  sweepRanges,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";
import { storeEvents } from "../../../support/stored-events.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const NOW = T0 + DAY_MS;
const { Platform } = exports;

/** A new subscription, the only one of its workspace, with stored events in one state. */
async function withEvents(count: number, state: Parameters<typeof storeEvents>[4]) {
  const { workspaceId, id } = await owed(0, T0);
  return { workspaceId, id, eventIds: await storeEvents(workspaceId, id, count, T0, state) };
}

const rangeOf = (...states: Range["states"]): Range => ({ since: T0, until: null, states });

/** The times of so many turns from `first` on, in milliseconds from now. */
const turns = (count: number, first = 0) =>
  Array.from({ length: count }, (_, i) => first + i * 100);

/** Events that have their turns one after another, from now on. */
const inTurn = (eventIds: string[]) => eventIds.map((eventId, i) => [eventId, i * 100]);

/** The pending events, in the order in which they are due. */
const orderOf = async (id: string) => (await scheduleOf(id, NOW)).map(([eventId]) => eventId);

/** What one step may read: each event it examines, its kind and its delivery, and little else. */
const STEP_ROWS = 3 * REDELIVERY_EXAMINED_MAX + 100;

// Ranges that a test leaves behind would take their turns in the sweeps of the next.
afterEach(() => db.update(subscriptions).set({ ranges: null }));

describe("a redelivered range", () => {
  test.each([
    ["missed", "delivered"],
    ["delivered", "missed"],
  ] as const)(
    "of %s events reads a limited number of rows per call and per step, whatever is stored",
    async (state, stored) => {
      const { id } = await withEvents(20_000, stored);
      const { DB, rows } = meteredDatabase();
      const metered = openDatabase(DB);
      for (let call = 0; call < 5; call++) {
        rows.read = 0;
        const range = { ...rangeOf(state), until: NOW + call };
        const again = await redeliverAgain(metered, id, range, NOW);
        expect(again).toMatchObject({ count: 0, more: true });
        expect(rows.read).toBeLessThan(STEP_ROWS);
      }
      for (let steps = 0; (await subscriptionRow(id)).ranges?.length === 5; steps++) {
        rows.read = 0;
        let taken = 0;
        await takeSteps(metered, NOW, () => taken++ === 0, 0);
        expect(rows.read).toBeLessThan(STEP_ROWS);
        expect(steps).toBeLessThan(20);
      }
    },
  );

  test("of failed events finds them among any number of delivered ones, in the call itself", async () => {
    const { workspaceId, id } = await withEvents(20_000, "delivered");
    const failed = await storeEvents(workspaceId, id, 3, T0 + HOUR_MS, "exhausted");
    await storeEvents(workspaceId, id, 2, T0 + 2 * HOUR_MS, "cancelled");
    const { DB, rows } = meteredDatabase();
    const again = await redeliverAgain(openDatabase(DB), id, rangeOf("exhausted"), NOW);
    expect(again).toMatchObject({ count: 3, more: false });
    expect(rows.read).toBeLessThan(200);
    expect(await orderOf(id)).toEqual(failed);
  });

  test("of failed events passes over those of a kind that is no longer listed, which take no slots", async () => {
    const { workspaceId, id } = await withEvents(700, "exhausted");
    const [listed = ""] = await storeEvents(workspaceId, id, 1, T0 + HOUR_MS, "exhausted");
    await db.update(events).set({ type: "run.completed" }).where(eq(events.id, listed));
    await Platform.updateWebhook({ webhookId: id, events: ["run.completed"] });
    expect(await redeliver(id, rangeOf("exhausted"), NOW)).toBe(1);
    expect(await scheduleOf(id, NOW)).toEqual([[listed, 0]]);
  });

  test("is scheduled until the next sweep, which goes on where it stopped", async () => {
    const { workspaceId, id, eventIds } = await withEvents(1_500, "missed");
    const again = await redeliverAgain(db, id, rangeOf("missed"), NOW);
    const perMinute = REDELIVERY_AHEAD_MS / 100;
    expect(again).toMatchObject({ count: perMinute, more: true });
    await sweepRanges(NOW, NOW);
    expect(await scheduleOf(id, NOW)).toHaveLength(perMinute);
    await sweepRanges(NOW + MINUTE_MS, NOW + 2 * MINUTE_MS);
    expect(await scheduleOf(id, NOW)).toEqual(inTurn(eventIds));
    expect((await subscriptionRow(id)).ranges).toBeNull();
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 1_500, addsUp: true });
  });

  test("catches up after sweeps that did not run, without sending more than ten per second", async () => {
    const { id } = await withEvents(1_000, "missed");
    await redeliver(id, rangeOf("missed"), NOW);
    await sweepRanges(NOW + HOUR_MS, NOW + HOUR_MS);
    const due = (await scheduleOf(id, NOW)).map(([, dueIn]) => dueIn);
    expect(due).toEqual([...turns(600), ...turns(400, HOUR_MS)]);
  });

  test("waits for those before it, and is the same if requested twice", async () => {
    const { id, eventIds } = await withEvents(700, "missed");
    const first = { ...rangeOf("missed"), since: T0 + 100 };
    const second = { ...rangeOf("missed"), until: T0 + 100 };
    expect(await redeliver(id, first, NOW)).toBe(600);
    expect(await redeliverAgain(db, id, second, NOW)).toMatchObject({ count: 0, more: true });
    await redeliver(id, second, NOW + 5);
    expect((await subscriptionRow(id)).ranges).toHaveLength(1);
    await sweepRanges(NOW + MINUTE_MS, NOW + MINUTE_MS);
    const expected = [...eventIds.slice(100), ...eventIds.slice(0, 100)];
    expect(await orderOf(id)).toEqual(expected);
  });

  test("is refused beyond a number of them, until they are done", async () => {
    const { workspaceId, id } = await withEvents(REDELIVERY_EXAMINED_MAX + 1, "delivered");
    const ask = (i: number) => redeliver(id, { ...rangeOf("missed"), until: NOW + i }, NOW);
    // The first one twice: it is there already.
    for (let i = 0; i <= REDELIVERY_RANGES_MAX; i++) await ask(i % REDELIVERY_RANGES_MAX);
    await sweepRanges(NOW, NOW);
    await storeEvents(workspaceId, id, REDELIVERY_EXAMINED_MAX, T0 + HOUR_MS, "delivered");
    await storeEvents(workspaceId, id, 9 * REDELIVERY_EXAMINED_MAX, T0 + 2 * HOUR_MS, "delivered");
    for (let i = 0; i < REDELIVERY_RANGES_MAX; i++) await ask(i);
    await expect(ask(-1)).rejects.toThrow(tooManyRanges().message);
    expect((await subscriptionRow(id)).ranges).toHaveLength(REDELIVERY_RANGES_MAX);
    const since = isoTime(Date.now() - HOUR_MS);
    expect(await errorOf(Platform.redeliver({ webhookId: id, since }))).toContain("webhookId");
    await sweepRanges(NOW, NOW);
    await ask(-1);
  });

  test("does not deliver again what it has delivered itself", async () => {
    const { id } = await withEvents(1_200, "delivered");
    await redeliver(id, rangeOf("delivered"), NOW);
    await dispatchAt(NOW + MINUTE_MS, [id], answered(200));
    await sweepRanges(NOW + MINUTE_MS, NOW + 3 * MINUTE_MS);
    expect(await statesOf(id)).toEqual({ delivered: 600, pending: 600 });
  });

  test("waits until everything withdrawn is cancelled, and then has all of it", async () => {
    const { id } = await owed(1_500, T0);
    await commit(db, disableSubscription(id, NOW));
    expect(await enableAgain(db, id, T0, NOW)).toMatchObject({ count: 0, more: true });
    await dispatchAt(NOW, [id], answered(200));
    await sweepRanges(NOW, NOW + 2 * MINUTE_MS);
    expect(await statesOf(id)).toEqual({ pending: 1_500 });
  });

  test.each(["before", "after"])("survives a crash %s any of its round trips", async (when) => {
    for (let at = 1, crashed = true; crashed; at++) {
      const { workspaceId, id, eventIds } = await withEvents(700, "missed");
      crashed = false;
      const crash = (trip: number) => {
        crashed ||= trip >= at;
        if (crashed) throw new Error("the machine is gone");
      };
      const database = openDatabase(observedDatabase({ [when]: crash }).DB);
      await redeliverAgain(database, id, rangeOf("missed"), NOW).catch(() => {});
      await takeSteps(database, NOW + MINUTE_MS, () => true, 0).catch(() => {});
      // The caller gets no answer, and calls again.
      await redeliverAgain(db, id, rangeOf("missed"), NOW + MINUTE_MS);
      await sweepRanges(NOW + MINUTE_MS, NOW + 4 * MINUTE_MS);
      const schedule = await scheduleOf(id, NOW);
      expect(schedule.map(([eventId]) => eventId).toSorted()).toEqual(eventIds);
      for (const [i, [, dueIn]] of schedule.slice(1).entries())
        expect(dueIn - (schedule[i]?.[1] ?? 0)).toBeGreaterThanOrEqual(100);
      expect(await Platform.ledger({ workspaceId })).toMatchObject({ addsUp: true });
      expect((await subscriptionRow(id)).ranges).toBeNull();
      if (!crashed) expect(at).toBeGreaterThan(5);
    }
  });

  test("of two at once goes on with each event once", async () => {
    const { id, eventIds } = await withEvents(900, "missed");
    await redeliver(id, rangeOf("missed"), NOW);
    const later = NOW + MINUTE_MS;
    await Promise.all([sweepRanges(later, later), sweepRanges(later, later)]);
    expect(await scheduleOf(id, NOW)).toEqual(inTurn(eventIds));
    // No turn is left empty.
    expect(await subscriptionRow(id)).toMatchObject({ scheduledUntil: NOW + 900 * 100 });
  });
});

test("sweeps take turns: each subscription has a step before any has a second", async () => {
  const both = [await withEvents(5_000, "delivered"), await withEvents(5_000, "delivered")];
  for (const { id } of both) await redeliver(id, rangeOf("missed"), NOW);
  const reached = async () =>
    Promise.all(both.map(async ({ id }) => (await subscriptionRow(id)).ranges?.[0]?.after));
  const began = await reached();
  for (const moved of [1, 2]) {
    let taken = 0;
    await takeSteps(db, NOW, () => taken++ === 0, 0);
    const changed = (await reached()).filter((after, i) => after !== began[i]);
    expect(changed).toHaveLength(moved);
  }
});

describe("named events", () => {
  test("of many calls become due ten per second in total", async () => {
    const { id, eventIds } = await withEvents(1_000, "delivered");
    const calls = Array.from({ length: 10 }, (_, i) => eventIds.slice(100 * i, 100 * i + 100));
    for (const [i, named] of calls.entries()) expect(await redeliver(id, named, NOW + i)).toBe(100);
    expect(await scheduleOf(id, NOW)).toEqual(inTurn(eventIds));
  });

  test("whose kind is no longer listed when they are scheduled are not", async () => {
    const { id, eventIds } = await withEvents(2, "delivered");
    const { DB } = observedDatabase({
      before: async (_, texts) => {
        if (texts.some((text) => /insert into "deliveries"/i.test(text)))
          await Platform.updateWebhook({ webhookId: id, events: ["run.completed"] });
      },
    });
    await redeliverAgain(openDatabase(DB), id, eventIds, NOW);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
  });

  test("wait for what is scheduled of a range, a minute at most, and the range then goes on", async () => {
    const { workspaceId, id } = await withEvents(0, "missed");
    const range = await storeEvents(workspaceId, id, 800, T0, "missed");
    const named = await storeEvents(workspaceId, id, 30, T0 + HOUR_MS, "delivered");
    await redeliver(id, rangeOf("missed"), NOW);
    expect(await redeliver(id, named.slice(0, 20), NOW + 10_050)).toBe(20);
    // One that is scheduled already keeps its time.
    expect(await redeliver(id, [...named.slice(20), range[400] ?? ""], NOW + 10_050)).toBe(10);
    const expected = [...range.slice(0, 600), ...named];
    expect(await scheduleOf(id, NOW)).toEqual(inTurn(expected));
    await sweepRanges(NOW + 2 * MINUTE_MS, NOW + 2 * MINUTE_MS);
    const later = (await scheduleOf(id, NOW)).slice(expected.length);
    expect(later.map(([eventId]) => eventId)).toEqual(range.slice(600));
    expect(later[0]?.[1]).toBe(2 * MINUTE_MS);
  });

  test("that wait for a retry are brought forward, never back", async () => {
    const { id, eventIds } = await withEvents(6, "delivered");
    const [soon, late, ...others] = eventIds as [string, string, ...string[]];
    const wait = (eventId: string, dueIn: number) =>
      setDeliveries(id, { state: "pending", attempts: 3, dueAt: NOW + dueIn }, eventId);
    await wait(soon, 50);
    await wait(late, 5 * HOUR_MS);
    await redeliver(id, [late, soon, ...others], NOW);
    expect(await scheduleOf(id, NOW)).toEqual([
      [soon, 0],
      [late, 100],
      ...others.map((eventId, i) => [eventId, 200 + i * 100]),
    ]);
    await wait(soon, 610);
    await wait(late, 620);
    await redeliver(id, [late, soon], NOW);
    // Its turn would be 80 ms later.
    expect((await scheduleOf(id, NOW)).slice(-2)).toEqual([
      [soon, 600],
      [late, 620],
    ]);
    const rows = await deliveriesTo(id);
    expect(rows.filter(({ attempts }) => attempts === 3)).toHaveLength(2);
  });
});

test("an active subscription that is enabled keeps its pace, and gets what it has missed", async () => {
  const { id } = await withEvents(3, "exhausted");
  const health = { failingSince: T0, failures: 4, backoff: 2, slow: true };
  await setSubscription(id, health);
  await enableAgain(db, id, T0, NOW);
  expect(await subscriptionRow(id)).toMatchObject(health);
  expect(await statesOf(id)).toEqual({ pending: 3 });
});
