import { env, exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { isoTime } from "../../../../src/contract/time.ts";
import { commit, openDatabase } from "../../../../src/db/client.ts";
import { deliveries } from "../../../../src/db/schema.ts";
import type { Page } from "../../../../src/http/paging.ts";
import { listHealth } from "../../../../src/webhooks/health.ts";
import { announce, type Draft } from "../../../../src/webhooks/outbox.ts";
import { redeliverAgain } from "../../../../src/webhooks/redelivery/redelivery.ts";
import {
  deleteSubscription,
  disableSubscription,
  enableSubscription,
  type Webhook,
} from "../../../../src/webhooks/subscriptions.ts";
import { errorOf, openWorkspace } from "../../../support/api.ts";
import {
  announceLeads,
  answered,
  comeBack,
  createWorkspace,
  DAY_MS,
  db,
  deliveriesTo,
  dispatchAt,
  draftLeads,
  HOUR_MS,
  observedDatabase,
  receivedBy,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriptionRow,
  sweepRanges,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";

const T0 = Date.UTC(2026, 0, 5, 12);

/** When each event is due at the subscription, earliest first. */
async function schedule(id: string): Promise<[eventId: string, dueAt: number][]> {
  const rows = (await deliveriesTo(id)).filter(({ state }) => state === "pending");
  return rows.toSorted((a, b) => a.dueAt - b.dueAt).map(({ eventId, dueAt }) => [eventId, dueAt]);
}

function idsOf(drafts: Draft[]): string[] {
  return drafts.map((draft) => draft.id);
}

async function ledgerOf(workspaceId: string) {
  return exports.Platform.ledger({ workspaceId });
}

describe("a subscription that is re-enabled", () => {
  test("is active and healthy again, appears so in GET /v1/webhooks, and gets nothing that it missed unless asked", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    await setSubscription(id, { disabledAt: T0 });
    await announceLeads(workspaceId, 2, T0);
    await setSubscription(id, { disabledAt: T0, failingSince: T0 - DAY_MS, failures: 12 });
    const enabled = await exports.Platform.enableWebhook({ webhookId: id });
    expect(enabled).toEqual({ count: 0, more: false });
    const { body } = await api.get<Page<Webhook>>("/v1/webhooks");
    expect(body.data).toMatchObject([{ id, disabled_at: null }]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
    await announceLeads(workspaceId, 1, T0);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });

  test("gets what it missed, with redeliverSince, with the same ids and bytes", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    const now = Date.now();
    await setSubscription(id, { disabledAt: now - 3 * HOUR_MS });
    const drafts = await announceLeads(workspaceId, 3, now - 2 * HOUR_MS);
    // As far back as it may go.
    const redeliverSince = isoTime(now - 30 * DAY_MS + 60_000);
    await exports.Platform.enableWebhook({ webhookId: id, redeliverSince });
    await expect.poll(() => statesOf(id), { timeout: 5_000 }).toEqual({ delivered: 3 });
    const received = await receivedBy({ url });
    const sent = drafts.map((draft) => [draft.id, draft.body]);
    expect(received.map(({ headers, body }) => [headers["webhook-id"], body]).toSorted()).toEqual(
      sent.toSorted(),
    );
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 3, delivered: 3, addsUp: true });
  });

  test.each([
    ["a minute longer than 30 days ago", isoTime(Date.now() - 30 * DAY_MS - 60_000)],
    ["no time", "yesterday"],
    ["not an ISO time", "2026-01-05"],
  ])("is not enabled if redeliverSince is %s", async (_, redeliverSince) => {
    const { id } = await subscribe(await createWorkspace());
    await setSubscription(id, { disabledAt: T0 });
    const enabling = exports.Platform.enableWebhook({ webhookId: id, redeliverSince });
    expect(await errorOf(enabling)).toContain("redeliverSince");
    expect((await subscriptionRow(id)).disabledAt).toBe(T0);
  });
});

describe("a redelivery", () => {
  test("is of everything never delivered: missed, cancelled and exhausted; oldest first", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const [exhausted, delivered, cancelled, waiting] = [
      ...(await announceLeads(workspaceId, 1, T0)),
      ...(await announceLeads(workspaceId, 1, T0 + 1)),
      ...(await announceLeads(workspaceId, 1, T0 + 2)),
      ...(await announceLeads(workspaceId, 1, T0 + 3)),
    ];
    const settled = { attempts: 11, settledAt: T0 + 10 };
    await setDeliveries(id, { ...settled, state: "exhausted" }, exhausted?.id);
    await setDeliveries(id, { ...settled, state: "delivered" }, delivered?.id);
    await setDeliveries(id, { ...settled, state: "cancelled" }, cancelled?.id);
    await setSubscription(id, { disabledAt: T0 });
    // Events of the same millisecond come in the order of their ids.
    const [first, second] = idsOf(await announceLeads(workspaceId, 2, T0 + 4)).toSorted();
    const now = T0 + HOUR_MS;
    await comeBack(id, T0, now);
    expect(await schedule(id)).toEqual([
      [waiting?.id, T0 + 3],
      [exhausted?.id, now],
      [cancelled?.id, now + 100],
      [first, now + 200],
      [second, now + 300],
    ]);
    const rows = await deliveriesTo(id);
    expect(rows.find(({ eventId }) => eventId === delivered?.id)).toMatchObject({
      state: "delivered",
      settledAt: T0 + 10,
    });
    // They start with a full ladder.
    for (const { state, attempts, settledAt } of rows)
      if (state === "pending") expect([attempts, settledAt]).toEqual([0, null]);
    const never = { exhausted: 0, cancelled: 0, addsUp: true };
    const ledger = await ledgerOf(workspaceId);
    expect(ledger).toMatchObject({ ...never, created: 6, pending: 5, delivered: 1 });
  });

  test("has nothing from before the given time, and nothing from before the subscription", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { createdAt: T0 + 10 });
    await setSubscription(id, { disabledAt: T0 });
    await announceLeads(workspaceId, 1, T0 + 9);
    const [first] = await announceLeads(workspaceId, 1, T0 + 10);
    const [second] = await announceLeads(workspaceId, 1, T0 + 11);
    await comeBack(id, T0 + 11, T0 + HOUR_MS);
    expect((await schedule(id)).map(([eventId]) => eventId)).toEqual([second?.id]);
    await comeBack(id, T0, T0 + HOUR_MS);
    const ids = (await schedule(id)).map(([eventId]) => eventId);
    expect(ids.toSorted()).toEqual([first?.id, second?.id].toSorted());
  });

  test("has only kinds that the subscription lists, of its own workspace", async () => {
    const [workspaceId, elsewhere] = [await createWorkspace(), await createWorkspace()];
    const { id } = await subscribe(workspaceId, { events: ["run.completed"] });
    await setSubscription(id, { disabledAt: T0 });
    await announceLeads(workspaceId, 2, T0);
    await announceLeads(elsewhere, 2, T0);
    const runs = draftLeads(1, T0);
    await commit(db, announce(workspaceId, "run.completed", runs, sql`true`, T0));
    await commit(db, announce(elsewhere, "run.completed", draftLeads(1, T0), sql`true`, T0));
    await comeBack(id, T0, T0 + HOUR_MS);
    expect(await schedule(id)).toEqual([[runs[0]?.id, T0 + HOUR_MS]]);
    expect(await ledgerOf(elsewhere)).toMatchObject({ created: 0, addsUp: true });
  });

  test("is only owed while the subscription is active and its workspace has access", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await setSubscription(id, { disabledAt: T0 });
    await announceLeads(workspaceId, 2, T0);
    const range = { since: T0, until: null, states: ["missed"] as const };
    expect(await redeliverAgain(db, id, range, T0)).toBe(null);
    expect(await deliveriesTo(id)).toEqual([]);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await comeBack(id, T0, T0);
    expect(await deliveriesTo(id)).toEqual([]);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: true });
    await comeBack(id, T0, T0);
    expect(await statesOf(id)).toEqual({ pending: 2 });
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 2, pending: 2, addsUp: true });
  });

  test.each(
    [
      "is disabled",
      "is deleted",
      "loses its workspace's access",
      // The look-up, the range, the step's two queries, and its transaction.
    ].flatMap((how) => [2, 3, 4, 5].map((at) => ({ how, at }))),
  )("adds nothing more once the subscription $how, before round trip $at", async ({ how, at }) => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, T0);
    await db.update(deliveries).set({ state: "cancelled", settledAt: T0 });
    await setSubscription(id, { disabledAt: T0 });
    await announceLeads(workspaceId, 2, T0);
    await commit(db, enableSubscription(id));
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip !== at) return;
        if (how === "is disabled") await commit(db, disableSubscription(id, T0));
        else if (how === "is deleted") await commit(db, deleteSubscription(workspaceId, id, T0));
        else await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
      },
    });
    const range = { since: T0, until: null, states: ["cancelled", "missed"] as const };
    await redeliverAgain(openDatabase(DB), id, range, T0).catch(() => {});
    expect(await statesOf(id)).toEqual({ cancelled: 1 });
    await commit(db, enableSubscription(id));
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: true });
    await sweepRanges(T0, T0);
    expect(await statesOf(id)).toEqual({ cancelled: 1 });
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 1, addsUp: true });
  });

  test("of an event owed to others too keeps the ledger right for each", async () => {
    const workspaceId = await createWorkspace();
    const back = await subscribe(workspaceId);
    const steady = await subscribe(workspaceId);
    await setSubscription(back.id, { disabledAt: T0 });
    await announceLeads(workspaceId, 3, T0);
    await dispatchAt(T0, [steady.id], answered(200));
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 3, addsUp: true });
    await comeBack(back.id, T0, T0 + HOUR_MS);
    expect(await ledgerOf(workspaceId)).toMatchObject({
      created: 6,
      delivered: 3,
      pending: 3,
      addsUp: true,
    });
    const owed = env.DB.prepare("SELECT owed FROM events WHERE workspace_id = ?").bind(workspaceId);
    const { results } = await owed.all<{ owed: string }>();
    for (const row of results)
      expect(JSON.parse(row.owed).toSorted()).toEqual([back.id, steady.id].toSorted());
    expect(results).toHaveLength(3);
  });
});

test("a redelivery reads the events that it sends, and a deletion what is pending, whatever else is stored", async () => {
  const now = Date.now();
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const drafts = await announceLeads(workspaceId, 2_000, now - HOUR_MS);
  const last = { lastAt: 1, lastOutcome: "answered", lastStatus: 200, lastDurationMs: 5 } as const;
  await setDeliveries(id, { ...last, state: "delivered", settledAt: 1, attempts: 1 });
  const { DB, rows } = meteredDatabase();
  const metered = openDatabase(DB);
  const eventIds = drafts.slice(0, 20).map((draft) => draft.id);
  expect(await redeliverAgain(metered, id, eventIds, now)).toMatchObject({ count: 20 });
  expect(rows.read).toBeLessThan(50 * eventIds.length);
  rows.read = 0;
  // Each has its turn by now.
  expect(await redeliverAgain(metered, id, eventIds, now)).toMatchObject({ count: 0 });
  expect(rows.read).toBeLessThan(50 * eventIds.length);
  rows.read = 0;
  expect(await listHealth(metered, workspaceId)).toMatchObject([{ pending: 20 }]);
  expect(rows.read).toBeLessThan(300);
  rows.read = 0;
  await commit(metered, deleteSubscription(workspaceId, id, now));
  expect(await statesOf(id)).toEqual({ cancelled: 20, delivered: 1_980 });
  expect(rows.read).toBeLessThan(50 * eventIds.length);
});
