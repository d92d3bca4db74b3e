import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { eq, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { encodeCursor } from "../../../src/contract/cursor.ts";
import type { DeliveryState } from "../../../src/contract/enumerations.ts";
import { eventIdAt, randomId } from "../../../src/contract/ids.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { commit, connect, type Database } from "../../../src/db/client.ts";
import { attempts, deliveries, events, PRIORITY, workspaces } from "../../../src/db/schema.ts";
import { announce } from "../../../src/events/outbox.ts";
import { findSubscriptionHealth, findUndeliveredSince } from "../../../src/history/health.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import { invoke } from "../../../src/platform/invoke.ts";
import { OPERATIONS } from "../../../src/platform/operations.ts";
import {
  enableAndReplay,
  type Range,
  REDELIVERY_EXAMINED_MAX,
  sendAgain,
} from "../../../src/replay/replay.ts";
import {
  deleteSubscription,
  disableSubscription,
  enableSubscription,
  type Webhook,
} from "../../../src/subscriptions/subscriptions.ts";
import { errorOf, openWorkspace, Platform } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  draftLeads,
  failAtTrip,
  failingSince,
  HOUR_MS,
  heldDispatch,
  isolated,
  observedDatabase,
  owed,
  scheduleOf,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db } from "../../support/placement.ts";
import { storeEvents } from "../../support/stored-events.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const NOW = T0 + HOUR_MS;

/** A subscription that was disabled at `T0`, the only one of its workspace. */
async function disabled(about: Parameters<typeof subscribe>[1] = {}) {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId, about);
  await setSubscription(subscription.id, { disabledAt: T0 });
  return { workspaceId, ...subscription };
}

/** Announces one event, and returns its id. */
async function announceOne(workspaceId: string, now: number): Promise<string> {
  const [draft] = await announceLeads(workspaceId, 1, now);
  return draft?.id ?? "";
}

async function expectLedger(workspaceId: string, figures: object) {
  expect(await Platform.ledger({ workspaceId })).toMatchObject({ ...figures, addsUp: true });
}

test("enableWebhook leaves the failures of an active subscription as they are", async () => {
  const { id } = await owed(1, T0);
  const failed = failingSince(T0, 9);
  await setSubscription(id, failed);
  await Platform.enableWebhook({ webhookId: id });
  expect(await subscriptionRow(id)).toMatchObject(failed);
});

describe("a subscription that is re-enabled", () => {
  test("gets no event that was recorded while disabled, unless requested", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    const pace = { concurrency: 4, slow: true };
    await setSubscription(id, { disabledAt: T0, ...failingSince(T0 - DAY_MS, 12), ...pace });
    await announceLeads(workspaceId, 2, T0);
    expect(await Platform.enableWebhook({ webhookId: id })).toEqual({ count: 0, nextCursor: null });
    const { body } = await api.get<PageBody<Webhook>>("/v1/webhooks");
    expect(body.data).toMatchObject([{ id, disabled_at: null }]);
    const row = await subscriptionRow(id);
    expect([row.circuits, row.failures, row.failingSince]).toEqual([{}, 0, null]);
    expect([row.concurrency, row.slow]).toEqual([1, false]);
    await announceLeads(workspaceId, 1, T0);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });

  test.each([
    ["a minute less than 30 days ago", isoTime(Date.now() - 30 * DAY_MS + 60_000), true],
    ["a minute more than 30 days ago", isoTime(Date.now() - 30 * DAY_MS - 60_000), false],
  ])("is enabled if redeliverSince is valid: %s", async (_, redeliverSince, isValid) => {
    const { id } = await disabled();
    const enabling = Platform.enableWebhook({ webhookId: id, redeliverSince });
    if (isValid) expect(await enabling).toMatchObject({ count: 0, nextCursor: null });
    else expect(await errorOf(enabling)).toContain("redeliverSince");
    expect((await subscriptionRow(id)).disabledAt).toBe(isValid ? null : T0);
  });
});

test("enableWebhook with a cursor is rejected once somebody has disabled the subscription again", async () => {
  const { id, workspaceId } = await disabled();
  const now = Date.now();
  await storeEvents(workspaceId, id, REDELIVERY_EXAMINED_MAX + 1, now - HOUR_MS, "missed");
  const range = { webhookId: id, redeliverSince: isoTime(now - DAY_MS) };
  const { nextCursor: cursor } = await Platform.enableWebhook(range);
  await setSubscription(id, { disabledAt: T0 });
  const call = Platform.enableWebhook({ ...range, cursor });
  expect(await errorOf(call)).toContain("it is disabled");
  expect((await subscriptionRow(id)).disabledAt).toBe(T0);
});

test("enableWebhook with redeliverSince enables nothing for a workspace without access", async () => {
  const { id, workspaceId } = await disabled();
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  const redeliverSince = isoTime(Date.now() - DAY_MS);
  const call = Platform.enableWebhook({ webhookId: id, redeliverSince });
  expect(await errorOf(call)).toContain("its workspace has no access");
  expect((await subscriptionRow(id)).disabledAt).toBe(T0);
});

describe("a redelivery", () => {
  test("sends all undelivered events of the listed types since the subscription's creation, oldest first", async () => {
    const { workspaceId: elsewhere } = await disabled();
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { createdAt: T0 });
    const runs = await subscribe(workspaceId, { events: ["run.completed"] });
    await setSubscription(runs.id, { disabledAt: T0 });
    const announced = async (i: number, state: DeliveryState) => {
      const eventId = await announceOne(workspaceId, T0 + i);
      if (state !== "pending")
        await setDeliveries(id, { state, stepsUsed: 11, settledAt: T0 + 10 }, eventId);
      return eventId;
    };
    const exhausted = await announced(0, "exhausted");
    const delivered = await announced(1, "delivered");
    const cancelled = await announced(2, "cancelled");
    const waiting = await announced(3, "pending");
    await setSubscription(id, { disabledAt: T0 });
    // Events of the same millisecond come in the order of their ids.
    const missed = await announceLeads(workspaceId, 2, T0 + 4);
    const [first, second] = missed.map((each) => each.id).toSorted();
    await announceLeads(workspaceId, 1, T0 - 1);
    await announceLeads(elsewhere, 1, T0 + 4);
    const unlisted = draftLeads(1, T0 + 4);
    await commit(
      db,
      announce(workspaceId, "run.completed", unlisted, () => sql`true`, T0 + 4),
    );
    await enableAndReplay(db, id, T0 - DAY_MS, NOW);
    expect(await scheduleOf(id, NOW)).toEqual([
      [waiting, T0 + 3 - NOW],
      [exhausted, 0],
      [cancelled, 0],
      [first, 0],
      [second, 0],
    ]);
    // Each begins its retry schedule anew.
    for (const row of await deliveriesTo(id))
      expect(row).toMatchObject(
        row.eventId === delivered
          ? { state: "delivered", settledAt: T0 + 10 }
          : { state: "pending", stepsUsed: 0, settledAt: null, firstAt: null },
      );
    const never = { exhausted: 0, cancelled: 0 };
    await expectLedger(workspaceId, { ...never, created: 6, pending: 5, delivered: 1 });
  });

  test.each(["exhausted", "cancelled"] as const)(
    "of what was delivered, then resent and %s, happens only if delivered events are requested",
    async (state) => {
      const { id, workspaceId, drafts } = await owed(2, T0);
      await dispatchAt(T0, [id], answered(200));
      const [eventId = ""] = drafts.map((draft) => draft.id);
      await sendAgain(db, id, { eventIds: [eventId] }, NOW);
      await dispatchAt(NOW, [id], answered(500));
      if (state === "exhausted") await setDeliveries(id, { state, settledAt: NOW }, eventId);
      await commit(db, disableSubscription(id, NOW));
      expect(await enableAndReplay(db, id, T0, NOW)).toMatchObject({ count: 0, next: null });
      await expectLedger(workspaceId, { created: 2, delivered: 1, [state]: 1 });
      const count = async (...states: Range["states"]) =>
        (await sendAgain(db, id, { since: T0, until: null, states }, NOW))?.count;
      expect(await count(state)).toBe(0);
      expect(await count("delivered")).toBe(2);
      expect(await deliveriesTo(id)).toMatchObject(Array(2).fill({ deliveredEarlier: true }));
    },
  );

  const ENDS: Record<string, (workspaceId: string, id: string) => Promise<unknown>> = {
    "is disabled": (_, id) => commit(db, disableSubscription(id, T0)),
    "is deleted": (workspaceId, id) => commit(db, deleteSubscription(workspaceId, id, T0)),
    "no longer lists their kind": (_, id) => setSubscription(id, { events: ["run.completed"] }),
    "loses its workspace's access": (workspaceId) =>
      Platform.setWorkspaceAccess({ workspaceId, granted: false }),
  };
  test.each(Object.entries(ENDS))(
    "adds nothing more once the subscription %s, before its transaction",
    async (_, end) => {
      const { workspaceId, id } = await owed(1, T0);
      await setDeliveries(id, { state: "cancelled", settledAt: T0 });
      await setSubscription(id, { disabledAt: T0 });
      await announceLeads(workspaceId, 2, T0);
      await setSubscription(id, { disabledAt: null });
      const { DB } = observedDatabase({
        // The look-up, the range, the count of the hour, and its transaction.
        before: async (trip) => void (trip === 4 && (await end(workspaceId, id))),
      });
      const range = { since: T0, until: null, states: ["cancelled", "missed"] as const };
      await sendAgain(connect(DB), id, range, T0).catch(() => {});
      expect(await statesOf(id)).toEqual({ cancelled: 1 });
      await commit(db, enableSubscription(id));
      await Platform.setWorkspaceAccess({ workspaceId, granted: true });
      expect(await statesOf(id)).toEqual({ cancelled: 1 });
      await expectLedger(workspaceId, { created: 1 });
    },
  );

  test("of an event with other deliveries keeps the ledger right for each", async () => {
    const { workspaceId, id: back } = await disabled();
    const { id: steady } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 3, T0);
    await dispatchAt(T0, [steady], answered(200));
    await expectLedger(workspaceId, { created: 3 });
    await enableAndReplay(db, back, T0, NOW);
    await expectLedger(workspaceId, { created: 6, delivered: 3, pending: 3 });
    const owners = db.select({ owed: events.owed }).from(events);
    for (const { owed } of await owners.where(eq(events.workspaceId, workspaceId)))
      expect(owed.toSorted()).toEqual([back, steady].toSorted());
  });
});

test("a redelivery reads only the events that it sends, whatever else is stored", async () => {
  const now = Date.now();
  const { workspaceId, id } = await owed(0, now);
  const stored = await storeEvents(workspaceId, id, 1_000, now - HOUR_MS, "delivered");
  const last = { lastAt: 1, lastOutcome: "answered", lastStatus: 200, lastDurationMs: 5 } as const;
  await setDeliveries(id, last);
  const { DB, rows } = meteredDatabase();
  const metered = connect(DB);
  const eventIds = stored.slice(0, 20);
  const again = () => sendAgain(metered, id, { eventIds }, now);
  for (const [max, work, result] of [
    [900, again, { count: 20 }],
    // Each has its turn by now.
    [900, again, { count: 0 }],
    [300, () => findSubscriptionHealth(metered, env, id), { pending: 20 }],
    [100, () => commit(metered, deleteSubscription(workspaceId, id, now)), { wakeUps: [{}] }],
    [900, () => dispatchOn(DB, now, [id], answered(200)), []],
  ] as const) {
    rows.read = 0;
    expect(await work()).toMatchObject(result);
    expect(rows.read).toBeLessThan(max);
  }
  expect(await statesOf(id)).toEqual({ cancelled: 20, delivered: 980 });
});

describe("a range", () => {
  const rangeOf = (...states: Range["states"]) => ({ since: T0, until: null, states });

  test("examines a thousand events in each call, oldest first", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const ids = await storeEvents(workspaceId, id, REDELIVERY_EXAMINED_MAX + 1, T0, "missed");
    const counts: number[] = [];
    for (let after: Range["after"] = null, calls = 0; after !== null || calls === 0; calls++) {
      const answer = await sendAgain(db, id, { ...rangeOf("missed"), after }, NOW);
      counts.push(answer?.count ?? -1);
      after = answer?.next ?? null;
      // What comes meanwhile is no part of it.
      await storeEvents(workspaceId, id, 10, NOW + HOUR_MS + calls, "missed");
    }
    expect(counts).toEqual([REDELIVERY_EXAMINED_MAX, 1]);
    expect(await scheduleOf(id, NOW)).toEqual(ids.map((eventId) => [eventId, 0]));
  });

  test("comes after resends and new events", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const [missed = ""] = await storeEvents(workspaceId, id, 1, T0, "missed");
    const [named = ""] = await storeEvents(workspaceId, id, 1, T0 - 1, "delivered");
    await sendAgain(db, id, rangeOf("missed"), NOW);
    const fresh = await announceOne(workspaceId, NOW);
    expect(await sendAgain(db, id, { eventIds: [named] }, NOW)).toMatchObject({ count: 1 });
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toEqual([named, fresh, missed]);
  });
});

test("what counts as cancelled is found before a dispatch has cancelled it", async () => {
  const { workspaceId, id, drafts } = await owed(3, T0);
  await dispatchAt(T0, [id], answered(400));
  await commit(db, disableSubscription(id, T0));
  await commit(db, { enabled: enableSubscription(id) });
  const [first] = drafts.map((draft) => draft.id).toSorted();
  expect(await statesOf(id)).toEqual({ pending: 3 });
  const range: Range = { since: T0, until: null, states: ["cancelled"] };
  expect(await sendAgain(db, id, range, NOW)).toMatchObject({ count: 3, next: null });
  expect((await scheduleOf(id, NOW))[0]).toEqual([first, 0]);
  await dispatchAt(NOW + HOUR_MS, [id], answered(200));
  expect(await statesOf(id)).toEqual({ delivered: 3 });
  await expectLedger(workspaceId, { created: 3, delivered: 3, cancelled: 0 });
});

test.each<[string, (ids: string[]) => readonly string[] | Range]>([
  ["by a range", () => ({ since: T0, until: null, states: ["cancelled"] })],
  ["by its id", (ids) => ids],
])("what a dispatch marks as cancelled while it is sent again is sent: %s", async (_, wanted) => {
  const { id, drafts } = await owed(3, T0);
  await commit(db, disableSubscription(id, T0));
  await commit(db, { enabled: enableSubscription(id) });
  const { DB } = observedDatabase({
    before: async (_, texts) => {
      if (texts.join().includes('insert into "deliveries"')) await dispatchAt(NOW, [id], NOT_SENT);
    },
  });
  const named = wanted(drafts.map((draft) => draft.id));
  const what = "since" in named ? named : { eventIds: named };
  expect(await sendAgain(connect(DB), id, what, NOW)).toMatchObject({ count: 3 });
  expect(await statesOf(id)).toEqual({ pending: 3 });
});

const NOT_SENT = () => expect.unreachable("nothing is sent");

describe("what a subscription did not get", () => {
  const sinceOf = async (webhookId: string) =>
    (await Platform.readWebhook({ webhookId })).undeliveredSince;

  test("begins before its first attempt failed, and is sent from there once it is re-enabled", async () => {
    const { id, drafts } = await owed(1, T0);
    expect(await sinceOf(id)).toBe(null);
    // Its attempt failed later than it was recorded.
    await dispatchAt(T0 + 150, [id], answered(503));
    expect((await subscriptionRow(id)).failingSince).toBe(T0 + 150);
    expect(await sinceOf(id)).toBe(isoTime(T0));
    await commit(db, disableSubscription(id, NOW));
    for (const isCancelled of [false, true]) {
      if (isCancelled) await dispatchAt(NOW, [id], answered(503));
      expect(await sinceOf(id)).toBe(isoTime(T0));
    }
    expect(await enableAndReplay(db, id, T0, NOW)).toMatchObject({ count: 1 });
    expect(await scheduleOf(id, NOW)).toEqual([[drafts[0]?.id, 0]]);
  });

  test("begins with an event that is cancelled before it was tried", async () => {
    const { id } = await owed(1, T0);
    await commit(db, disableSubscription(id, NOW));
    for (const isCancelled of [false, true]) {
      if (isCancelled) await dispatchAt(NOW, [id], answered(503));
      expect(await sinceOf(id)).toBe(isoTime(T0));
    }
  });

  test.each([
    ["a failure of an earlier time", { state: "cancelled", settledAt: T0 + 1 }],
    ["what was delivered before", { state: "cancelled", settledAt: NOW, deliveredEarlier: true }],
  ] as const)("begins a minute before it was disabled, without %s", async (_, row) => {
    const { id } = await owed(1, T0);
    await setDeliveries(id, row);
    await commit(db, disableSubscription(id, NOW));
    expect(await sinceOf(id)).toBe(isoTime(NOW - 60_000));
  });

  test("begins with the thousandth that ended if none of the first thousand counts", async () => {
    const { id, workspaceId } = await owed(0, T0);
    await storeEvents(workspaceId, id, 1_001, T0, "exhausted");
    await setDeliveries(id, { deliveredEarlier: true });
    expect(await sinceOf(id)).toBe(isoTime(T0 + 999));
    await db.delete(deliveries).where(eq(deliveries.subscriptionId, id)).limit(2);
    expect(await sinceOf(id)).toBe(null);
  });

  test.each(["exhausted", "cancelled", "retrying"] as const)(
    "begins with the oldest event, which is %s, though others are in other states",
    async (oldest) => {
      const { id, workspaceId } = await owed(0, T0);
      const rows = {
        exhausted: { state: "exhausted", settledAt: NOW },
        cancelled: { state: "cancelled", settledAt: NOW },
        retrying: { priority: PRIORITY.retry, stepsUsed: 1, lastAt: T0 },
      } as const;
      for (const [state, row] of Object.entries(rows))
        await setDeliveries(
          id,
          row,
          await announceOne(workspaceId, state === oldest ? T0 : T0 + 1),
        );
      expect(await sinceOf(id)).toBe(isoTime(T0));
    },
  );

  test("begins with what failed since the last success before it was disabled", async () => {
    const { id } = await owed(1, T0);
    await setDeliveries(id, { state: "exhausted", settledAt: T0 + 2 });
    await commit(db, disableSubscription(id, NOW));
    const begins: unknown[] = [];
    for (const failingSince of [T0 + 2, T0 + 3]) {
      await setSubscription(id, { failingSince });
      begins.push(await sinceOf(id));
    }
    expect(begins).toEqual([isoTime(T0), isoTime(NOW - 60_000)]);
  });

  test("still begins there once its workspace has lost access and got it back", async () => {
    const { id, workspaceId } = await owed(1, T0);
    await setDeliveries(id, { state: "exhausted", settledAt: T0 + 2 });
    await setSubscription(id, { failingSince: T0 + 2 });
    await commit(db, disableSubscription(id, NOW));
    for (const granted of [false, true])
      await Platform.setWorkspaceAccess({ workspaceId, granted });
    expect(await sinceOf(id)).toBe(isoTime(T0));
  });

  test("includes an event whose recording began before it was disabled", async () => {
    const { id, workspaceId } = await owed(1, T0);
    await dispatchAt(T0, [id], answered(200));
    await commit(db, disableSubscription(id, NOW));
    const recorded = await announceOne(workspaceId, NOW - 20_000);
    const since = Date.parse((await sinceOf(id)) ?? "");
    expect(await enableAndReplay(db, id, since, NOW)).toMatchObject({ count: 1 });
    expect(await scheduleOf(id, NOW)).toEqual([[recorded, 0]]);
  });

  test("includes an event that is recorded while it is being enabled", async () => {
    const { id, workspaceId } = await disabled();
    let recorded = "";
    const { DB } = observedDatabase({
      // The third round trip enables it.
      before: async (trip) => {
        if (trip === 3) recorded = await announceOne(workspaceId, NOW + 50);
      },
    });
    expect(await enableAndReplay(connect(DB), id, T0, NOW)).toMatchObject({ count: 1 });
    expect(await scheduleOf(id, NOW)).toEqual([[recorded, 0]]);
  });

  test.each([
    ["a retry", { priority: PRIORITY.retry, stepsUsed: 1, lastAt: T0 }],
    ["a failure", { state: "exhausted", stepsUsed: 11, settledAt: NOW }],
    ["a cancelled event", { state: "cancelled", settledAt: NOW }],
  ] as const)(
    "does not begin with %s of an event type that is no longer listed",
    async (_, row) => {
      const { id } = await owed(1, T0);
      await setDeliveries(id, row);
      await setSubscription(id, { events: ["run.completed"] });
      expect(await sinceOf(id)).toBe(null);
      await setSubscription(id, { events: ["lead.created"] });
      expect(await sinceOf(id)).toBe(isoTime(T0));
    },
  );

  test("does not begin with a new event while those of an unlisted event type are cancelled", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
    const runs = draftLeads(1, T0);
    await commit(
      db,
      announce(workspaceId, "run.completed", runs, () => sql`true`, T0),
    );
    await Platform.updateWebhook({ webhookId: id, events: ["lead.created"] });
    await announceOne(workspaceId, T0 + 1);
    expect(await subscriptionRow(id)).toMatchObject({ hasToEnd: true });
    expect(await sinceOf(id)).toBe(null);
  });

  test.each([
    ["was disabled", { disabledAt: T0 }, true],
    ["did not list their type", { events: ["run.completed" as const] }, true],
    ["had no access", { disabledAt: null }, false],
  ])(
    "does not begin with events of a time when it %s, which are sent as missed",
    async (_, before, granted) => {
      const { id, workspaceId } = await owed(0, T0);
      await subscribe(workspaceId);
      await setSubscription(id, before);
      await Platform.setWorkspaceAccess({ workspaceId, granted });
      const missed = await announceOne(workspaceId, T0);
      await setSubscription(id, { disabledAt: null, events: ["lead.created"] });
      await Platform.setWorkspaceAccess({ workspaceId, granted: true });
      expect(await sinceOf(id)).toBe(null);
      const range: Range = { since: T0, until: null, states: ["missed"] };
      expect(await sendAgain(db, id, range, NOW)).toMatchObject({ count: 1 });
      expect(await scheduleOf(id, NOW)).toEqual([[missed, 0]]);
    },
  );

  test("is found among few, however many deliveries there are", async () => {
    const { id, workspaceId, drafts } = await owed(1, T0 - HOUR_MS);
    const [first] = drafts;
    const last = (await announceLeads(workspaceId, 2_500, T0))
      .map((draft) => draft.id)
      .toSorted()
      .at(-1);
    const { DB, rows } = meteredDatabase();
    const found = async (max: number) => {
      rows.read = 0;
      const since = await findUndeliveredSince(connect(DB), id);
      expect(rows.read).toBeLessThan(max);
      return since;
    };
    expect(await found(50)).toBe(null);
    // The first has failed most often, so it waits the longest.
    await setDeliveries(id, { priority: PRIORITY.retry, stepsUsed: 1, dueAt: T0 + HOUR_MS });
    await setDeliveries(id, { dueAt: T0 + DAY_MS }, first?.id);
    expect(await found(1_100)).toBe(isoTime(T0 - HOUR_MS));
    await setDeliveries(id, { priority: PRIORITY.untried, stepsUsed: 0, dueAt: T0 });
    await setDeliveries(id, { dueAt: T0 - HOUR_MS }, first?.id);
    await setSubscription(id, {
      disabledAt: NOW,
      failingSince: NOW,
      hasToEnd: true,
      epoch: 1,
      cancelledBefore: { "lead.created": 1 },
    });
    expect(await found(50)).toBe(isoTime(T0 - HOUR_MS));
    // Beyond those that are looked at, none is left out.
    await setDeliveries(id, { state: "exhausted", settledAt: T0 });
    await setDeliveries(id, { state: "cancelled", settledAt: NOW }, last);
    expect(await found(2_100)).toBe(isoTime(T0));
  });
});

test.each([
  ["by a range", { since: T0, until: null, states: ["retrying"] }],
  ["by its id", null],
] as const)(
  "a replayed delivery that waits for its endpoint is sent and counted %s, once",
  async (_, range) => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    await setDeliveries(id, { stepsUsed: 1, priority: PRIORITY.retry, dueAt: NOW + HOUR_MS });
    const again = () => sendAgain(db, id, range ?? { eventIds: [eventId] }, NOW);
    expect(await again()).toMatchObject({ count: 1 });
    expect(await again()).toMatchObject({ count: 0 });
    await dispatchAt(NOW + 1_000, [id], answered(200));
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  },
);

test("A replay begins the schedules of failed events anew, and leaves out what was not tried", async () => {
  const { id, drafts } = await owed(2, T0);
  await setDeliveries(id, {
    stepsUsed: 4,
    attemptsMade: 9,
    firstAt: T0,
    priority: PRIORITY.retry,
    dueAt: NOW + HOUR_MS,
  });
  const { workspaceId } = await subscriptionRow(id);
  const untried = await announceOne(workspaceId, T0 + 1);
  const range = (...states: Range["states"]) => ({ since: T0, until: null, states });
  expect(await sendAgain(db, id, range("exhausted"), NOW)).toMatchObject({ count: 0 });
  expect(await sendAgain(db, id, range("retrying"), NOW)).toMatchObject({ count: 2 });
  expect(await sendAgain(db, id, range("retrying"), NOW)).toMatchObject({ count: 0 });
  const rows = await deliveriesTo(id);
  expect(rows.filter(({ eventId }) => eventId !== untried)).toMatchObject(
    drafts.map(() => ({
      priority: PRIORITY.replay,
      stepsUsed: 0,
      attemptsMade: 9,
      firstAt: null,
      dueAt: NOW,
    })),
  );
});

test.each([9, 11])(
  "A replay sends a retry again that was in flight and fails as attempt %i of 11",
  async (attempt) => {
    const { id, drafts } = await owed(1, T0);
    await setDeliveries(id, { stepsUsed: attempt - 1, priority: PRIORITY.retry, dueAt: NOW });
    const held = await heldDispatch(NOW, id);
    const range = { since: T0, until: null, states: ["retrying"] } as const;
    expect(await sendAgain(db, id, range, NOW + 100)).toMatchObject({ count: 1 });
    await held.finish(answered(400));
    expect(await scheduleOf(id, NOW)).toEqual([[drafts[0]?.id, 100]]);
    await dispatchAt(NOW + 100, [id], answered(200));
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  },
);

test("A first attempt in flight is made again if its subscription is disabled, and enabled with a replay", async () => {
  const { id } = await owed(1, T0);
  const held = await heldDispatch(NOW, id);
  await commit(db, disableSubscription(id, NOW));
  expect(await enableAndReplay(db, id, T0, NOW + 1)).toMatchObject({ count: 1 });
  await held.finish(answered(400));
  await dispatchAt(NOW + 1, [id], answered(200));
  expect(await deliveriesTo(id)).toMatchObject([{ state: "delivered", attemptsMade: 2 }]);
});

describe("a replay of a range", () => {
  const all = { since: T0, until: null, states: ["exhausted", "cancelled", "retrying"] } as const;
  const countOf = async (id: string, range: Partial<Range>) =>
    (await sendAgain(db, id, { ...all, ...range }, NOW))?.count;

  test("includes an event of the millisecond of its call, and no later one", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await announceOne(workspaceId, NOW + 1);
    await setDeliveries(id, { state: "exhausted", stepsUsed: 11, settledAt: NOW });
    expect(await countOf(id, {})).toBe(1);
  });

  /** A subscription to two types: two leads and a run failed for good, each with a status. */
  async function failed() {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
    const leads = await announceLeads(workspaceId, 2, T0);
    const runs = draftLeads(1, T0 + 1);
    await commit(
      db,
      announce(workspaceId, "run.completed", runs, () => sql`true`, T0 + 1),
    );
    const end = (status: number | null, eventId = "") =>
      setDeliveries(
        id,
        {
          state: "exhausted",
          stepsUsed: 11,
          settledAt: T0 + 10,
          lastAt: T0,
          lastOutcome: status === null ? "timed_out" : "answered",
          lastStatus: status,
        },
        eventId,
      );
    const [first = "", second = ""] = leads.map((draft) => draft.id).toSorted();
    const run = runs[0]?.id ?? "";
    await end(500, first);
    await end(null, second);
    await end(499, run);
    return { id, first, second, run };
  }

  test("leaves out an event without a delivery if no response is asked for", async () => {
    const { id, second } = await failed();
    const { workspaceId } = await subscriptionRow(id);
    await setSubscription(id, { disabledAt: T0 });
    await announceOne(workspaceId, T0 + 2);
    await setSubscription(id, { disabledAt: null });
    await countOf(id, { states: ["exhausted", "missed"], status: "none" });
    expect(await scheduleOf(id, NOW)).toEqual([[second, 0]]);
  });

  test("counts what it would send in a dry run, and sends nothing", async () => {
    const { id, first } = await failed();
    expect(await countOf(id, { dryRun: true })).toBe(3);
    const named = { eventIds: [first], dryRun: true };
    expect(await sendAgain(db, id, named, NOW)).toMatchObject({ count: 1, next: null });
    expect(await statesOf(id)).toEqual({ exhausted: 3 });
    expect(await countOf(id, {})).toBe(3);
    expect(await countOf(id, { dryRun: true })).toBe(0);
  });

  test("counts pages of a dry run that add up to what is sent", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await storeEvents(workspaceId, id, REDELIVERY_EXAMINED_MAX + 1, T0, "exhausted");
    const first = await sendAgain(db, id, { ...all, dryRun: true }, NOW);
    const second = await sendAgain(
      db,
      id,
      { ...all, dryRun: true, after: first?.next ?? null },
      NOW,
    );
    expect([first?.count, second]).toMatchObject([
      REDELIVERY_EXAMINED_MAX,
      { count: 1, next: null },
    ]);
  });

  test.each([
    ["an event type", { type: "run.completed" }, "run"],
    ["a status", { status: 499 }, "run"],
    ["a class of statuses", { status: "5xx" }, "first"],
    ["an end", { until: T0 + 1, status: 500 }, "first"],
  ] as const)("can be limited to %s", async (_, range, which) => {
    const { id, ...ids } = await failed();
    expect(await countOf(id, range)).toBe(1);
    expect((await scheduleOf(id, NOW)).map(([eventId]) => eventId)).toEqual([ids[which]]);
  });

  test.each<[string, outcome: string, status: number | null]>([
    ["that timed out", "timed_out", null],
    ["for which Cloudflare responded", "unreachable", 403],
  ])("can be limited to attempts %s", async (_, lastOutcome, lastStatus) => {
    const { id, second } = await failed();
    await setDeliveries(id, { lastOutcome, lastStatus }, second);
    expect(await countOf(id, { status: "none" })).toBe(1);
    expect((await scheduleOf(id, NOW)).map(([eventId]) => eventId)).toEqual([second]);
  });

  test("does not begin before its start, wherever a cursor leads", async () => {
    const { id } = await failed();
    const before = { at: NOW, id: eventIdAt(T0 - DAY_MS) };
    expect(await countOf(id, { since: T0 + 1, after: before })).toBe(1);
  });

  test("ends where it was first asked for, whatever time a cursor has", async () => {
    const { id } = await failed();
    const { workspaceId } = await subscriptionRow(id);
    await storeEvents(workspaceId, id, 1, NOW + HOUR_MS, "exhausted");
    const later = { at: NOW + DAY_MS, id: eventIdAt(T0) };
    expect(await countOf(id, { after: later })).toBe(3);
  });

  test.each([
    ["delivered", { state: "delivered" }, { delivered: 1, pending: 2 }],
    ["tried", { attemptsMade: 12 }, { exhausted: 1, pending: 2 }],
    ["rescheduled", { dueAt: NOW + 1 }, { exhausted: 1, pending: 2 }],
  ] as const)("leaves out a delivery that was %s since it was read", async (_, row, states) => {
    const { id, first } = await failed();
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 3 && (await setDeliveries(id, row, first))),
    });
    expect(await sendAgain(connect(DB), id, all, NOW)).toMatchObject({ count: 2 });
    expect(await statesOf(id)).toEqual(states);
    expect(await db.select().from(attempts).where(eq(attempts.eventId, first))).toEqual([]);
  });

  test("sends what was cancelled because its type was removed once that is listed again", async () => {
    const { id, run } = await failed();
    await setDeliveries(id, { state: "cancelled" }, run);
    await setSubscription(id, { events: ["lead.created"] });
    for (const dryRun of [true, false])
      expect(await countOf(id, { states: ["cancelled"], dryRun })).toBe(0);
    await setSubscription(id, { events: ["lead.created", "run.completed"] });
    expect(await countOf(id, { states: ["cancelled"] })).toBe(1);
  });
});

describe("a resend by id", () => {
  test.each([
    ["has failed", { priority: PRIORITY.retry, dueAt: NOW + HOUR_MS }],
    ["was not tried yet", { priority: PRIORITY.untried, dueAt: T0 }],
    ["a replay sends", { priority: PRIORITY.replay, dueAt: NOW }],
  ])("puts a pending delivery first that %s, and begins its schedule anew", async (_, row) => {
    const { id, drafts } = await owed(1, T0);
    const eventIds = drafts.map((draft) => draft.id);
    await setDeliveries(id, { stepsUsed: 3, firstAt: T0, ...row });
    expect(await sendAgain(db, id, { eventIds }, NOW)).toMatchObject({ count: 1 });
    const resent = { priority: PRIORITY.resend, stepsUsed: 0, firstAt: null, dueAt: NOW };
    expect(await deliveriesTo(id)).toMatchObject([resent]);
    expect(await sendAgain(db, id, { eventIds }, NOW)).toMatchObject({ count: 0 });
  });

  test("is rejected while a hundred are pending", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const eventIds = await storeEvents(workspaceId, id, 101, T0, "delivered");
    const resend = (from: number, to: number) =>
      sendAgain(db, id, { eventIds: eventIds.slice(from, to) }, NOW);
    expect(await resend(0, 99)).toMatchObject({ count: 99 });
    // One of them is pending as a resend already.
    await expect(resend(98, 101)).rejects.toMatchObject({
      message: "eventIds: 99 resends of the webhook are pending, and 100 may be: try again later",
      details: { retry_after_seconds: 10 },
    });
    expect(await scheduleOf(id, NOW)).toHaveLength(99);
    const [counted] = await db.select().from(workspaces).where(eq(workspaces.id, workspaceId));
    expect(counted?.redelivered).toBe(99);
    expect(await resend(99, 100)).toMatchObject({ count: 1 });
    await dispatchAt(NOW, [id], answered(200));
    expect(await resend(100, 101)).toMatchObject({ count: 1 });
  });

  test("is rejected if another call at once has made as many pending", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const eventIds = await storeEvents(workspaceId, id, 120, T0, "delivered");
    const resend = (client: Database, from: number, count: number) =>
      sendAgain(client, id, { eventIds: eventIds.slice(from, from + count) }, NOW);
    // The look-up, the events, and the transaction.
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 3 && (await resend(db, 0, 60))),
    });
    await expect(resend(connect(DB), 60, 41)).rejects.toMatchObject({
      message: expect.stringContaining("60 resends of the webhook are pending"),
    });
    expect(await scheduleOf(id, NOW)).toHaveLength(60);
    expect(await resend(db, 60, 40)).toMatchObject({ count: 40 });
  });
});

test("redeliver rejects what belongs to a range together with event ids", async () => {
  const { id, drafts } = await owed(1, T0);
  const eventIds = drafts.map((draft) => draft.id);
  const cursor = encodeCursor("redelivery", { at: T0, id: randomId("replay") });
  const fields: Omit<Parameters<typeof Platform.redeliver>[0], "webhookId">[] = [
    { since: isoTime(Date.now()) },
    { until: isoTime(NOW) },
    { states: ["exhausted"] },
    { type: "lead.created" },
    { status: "5xx" },
    { cursor },
  ];
  for (const field of fields)
    expect(await errorOf(Platform.redeliver({ webhookId: id, eventIds, ...field }))).toContain(
      "cannot be combined with eventIds",
    );
});

test.each<[string, number, (db: Database, id: string, eventId: string) => Promise<unknown>]>([
  ["An enabling", 1, (db, id) => enableAndReplay(db, id, null, NOW)],
  [
    "A replay",
    4,
    (db, id) => sendAgain(db, id, { since: T0, until: null, states: ["exhausted"] }, NOW),
  ],
  ["A resend", 4, (db, id, eventId) => sendAgain(db, id, { eventIds: [eventId] }, NOW)],
])("%s whose reply was lost is not tried again", async (_, trip, act) => {
  const { id, drafts } = await owed(1, T0);
  await setDeliveries(id, { state: "exhausted", stepsUsed: 11, settledAt: T0 });
  const { DB, trips } = observedDatabase({ after: failAtTrip(trip) });
  await expect(act(connect(DB), id, drafts[0]?.id ?? "")).rejects.toThrow("connection lost");
  expect(trips).toHaveLength(trip);
});

test("Two replays of an event that had no delivery at once make one delivery of it", async () => {
  const { workspaceId, id } = await owed(0, T0);
  await setSubscription(id, { disabledAt: T0 });
  await announceOne(workspaceId, T0);
  await setSubscription(id, { disabledAt: null });
  const range = { since: T0, until: null, states: ["missed"] } as const;
  const { DB } = observedDatabase({
    // The look-up, the range, and its transaction.
    before: async (trip) => void (trip === 3 && (await sendAgain(db, id, range, NOW))),
  });
  await sendAgain(connect(DB), id, range, NOW);
  await expectLedger(workspaceId, { created: 1, pending: 1 });
});

test.each([
  ["in a dry run counts, and wakes nobody", true, false, "exhausted", [0, 0]],
  ["wakes the subscription", false, false, "pending", [1, 0]],
  ["wakes a slow subscription in the slow queue", false, true, "pending", [0, 1]],
] as const)("redeliver %s", async (_, dryRun, slow, state, messages) => {
  const { id, drafts } = await owed(1, Date.now());
  await setSubscription(id, { slow });
  await setDeliveries(id, { state: "exhausted", stepsUsed: 11, settledAt: NOW });
  const eventIds = drafts.map((draft) => draft.id);
  const deployment = isolated();
  const call = { env: deployment.env, ctx: createExecutionContext() };
  const input = { webhookId: id, eventIds, dryRun };
  const counted = await invoke("redeliver", OPERATIONS.redeliver, call, input, "rpc");
  await waitOnExecutionContext(call.ctx);
  expect(counted).toEqual({ count: 1, nextCursor: null });
  expect(await statesOf(id)).toEqual({ [state]: 1 });
  expect([deployment.fast.length, deployment.slow.length]).toEqual(messages);
});
