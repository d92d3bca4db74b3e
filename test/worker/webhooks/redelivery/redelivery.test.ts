import { env, exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { isoTime } from "../../../../src/contract/time.ts";
import { commit, openDatabase } from "../../../../src/db/client.ts";
import type { Page } from "../../../../src/http/paging.ts";
import { listHealth } from "../../../../src/webhooks/health.ts";
import { announce } from "../../../../src/webhooks/outbox.ts";
import { enableAgain, redeliverAgain } from "../../../../src/webhooks/redelivery/redelivery.ts";
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
  createWorkspace,
  DAY_MS,
  db,
  deliveriesTo,
  dispatchAt,
  draftLeads,
  HOUR_MS,
  observedDatabase,
  owed,
  receivedBy,
  scheduleOf,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriptionRow,
  sweepRanges,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const NOW = T0 + HOUR_MS;
const { Platform } = exports;

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

describe("a subscription that is re-enabled", () => {
  test("is active and healthy again, appears so in GET /v1/webhooks, and gets nothing that it missed unless asked", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    await setSubscription(id, { disabledAt: T0, failingSince: T0 - DAY_MS, failures: 12 });
    await announceLeads(workspaceId, 2, T0);
    expect(await Platform.enableWebhook({ webhookId: id })).toEqual({ count: 0, more: false });
    const { body } = await api.get<Page<Webhook>>("/v1/webhooks");
    expect(body.data).toMatchObject([{ id, disabled_at: null }]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
    await announceLeads(workspaceId, 1, T0);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });

  test("gets what it missed, with redeliverSince, with the same ids and bytes", async () => {
    const { workspaceId, id, url } = await disabled();
    const now = Date.now();
    const drafts = await announceLeads(workspaceId, 3, now - 2 * HOUR_MS);
    // As far back as it may go.
    const redeliverSince = isoTime(now - 30 * DAY_MS + 60_000);
    await Platform.enableWebhook({ webhookId: id, redeliverSince });
    await expect.poll(() => statesOf(id), { timeout: 5_000 }).toEqual({ delivered: 3 });
    const received = await receivedBy({ url });
    const sent = drafts.map((draft) => [draft.id, draft.body]);
    expect(received.map(({ headers, body }) => [headers["webhook-id"], body]).toSorted()).toEqual(
      sent.toSorted(),
    );
    await expectLedger(workspaceId, { created: 3, delivered: 3 });
  });

  test.each([
    ["a minute longer than 30 days ago", isoTime(Date.now() - 30 * DAY_MS - 60_000)],
    ["no time", "yesterday"],
    ["not an ISO time", "2026-01-05"],
  ])("is not enabled if redeliverSince is %s", async (_, redeliverSince) => {
    const { id } = await disabled();
    const enabling = Platform.enableWebhook({ webhookId: id, redeliverSince });
    expect(await errorOf(enabling)).toContain("redeliverSince");
    expect((await subscriptionRow(id)).disabledAt).toBe(T0);
  });
});

describe("a redelivery", () => {
  test("is of everything never delivered: missed, cancelled and exhausted; oldest first", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const ids: string[] = [];
    for (const [i, state] of ["exhausted", "delivered", "cancelled"].entries()) {
      const eventId = await announceOne(workspaceId, T0 + i);
      const settled = { state, attempts: 11, settledAt: T0 + 10 } as { state: "delivered" };
      await setDeliveries(id, settled, eventId);
      ids.push(eventId);
    }
    const [exhausted, delivered, cancelled] = ids;
    const waiting = await announceOne(workspaceId, T0 + 3);
    await setSubscription(id, { disabledAt: T0 });
    // Events of the same millisecond come in the order of their ids.
    const [first, second] = (await announceLeads(workspaceId, 2, T0 + 4))
      .map((each) => each.id)
      .toSorted();
    await enableAgain(db, id, T0, NOW);
    expect(await scheduleOf(id, NOW)).toEqual([
      [waiting, T0 + 3 - NOW],
      [exhausted, 0],
      [cancelled, 100],
      [first, 200],
      [second, 300],
    ]);
    // They start with a full ladder.
    for (const row of await deliveriesTo(id))
      expect(row).toMatchObject(
        row.eventId === delivered
          ? { state: "delivered", settledAt: T0 + 10 }
          : { state: "pending", attempts: 0, settledAt: null },
      );
    const never = { exhausted: 0, cancelled: 0 };
    await expectLedger(workspaceId, { ...never, created: 6, pending: 5, delivered: 1 });
  });

  test("has nothing from before the given time, and nothing from before the subscription", async () => {
    const { workspaceId, id } = await disabled({ createdAt: T0 + 10 });
    const [, first, second] = [
      await announceOne(workspaceId, T0 + 9),
      await announceOne(workspaceId, T0 + 10),
      await announceOne(workspaceId, T0 + 11),
    ];
    const idsAfter = async (since: number) => {
      await enableAgain(db, id, since, NOW);
      return (await scheduleOf(id, NOW)).map(([eventId]) => eventId).toSorted();
    };
    expect(await idsAfter(T0 + 11)).toEqual([second]);
    expect(await idsAfter(T0)).toEqual([first, second].toSorted());
  });

  test("has only kinds that the subscription lists, of its own workspace", async () => {
    const { workspaceId, id } = await disabled({ events: ["run.completed"] });
    const elsewhere = await createWorkspace();
    const [run] = draftLeads(1, T0);
    for (const [owner, runs] of [
      [workspaceId, run ? [run] : []],
      [elsewhere, draftLeads(1, T0)],
    ] as const) {
      await announceLeads(owner, 2, T0);
      await commit(db, announce(owner, "run.completed", [...runs], sql`true`, T0));
    }
    await enableAgain(db, id, T0, NOW);
    expect(await scheduleOf(id, NOW)).toEqual([[run?.id, 0]]);
    await expectLedger(elsewhere, { created: 0 });
  });

  test("is only owed while the subscription is active and its workspace has access", async () => {
    const { workspaceId, id } = await disabled();
    await announceLeads(workspaceId, 2, T0);
    const range = { since: T0, until: null, states: ["missed"] as const };
    expect(await redeliverAgain(db, id, range, T0)).toBe(null);
    expect(await deliveriesTo(id)).toEqual([]);
    for (const [granted, states] of [[false, {}] as const, [true, { pending: 2 }] as const]) {
      await Platform.setWorkspaceAccess({ workspaceId, granted });
      await enableAgain(db, id, T0, T0);
      expect(await statesOf(id)).toEqual(states);
    }
    await expectLedger(workspaceId, { created: 2, pending: 2 });
  });

  const ENDS: Record<string, (workspaceId: string, id: string) => Promise<unknown>> = {
    "is disabled": (_, id) => commit(db, disableSubscription(id, T0)),
    "is deleted": (workspaceId, id) => commit(db, deleteSubscription(workspaceId, id, T0)),
    "loses its workspace's access": (workspaceId) =>
      Platform.setWorkspaceAccess({ workspaceId, granted: false }),
  };
  test.each(
    // The look-up, the range, the step's two queries, and its transaction.
    Object.entries(ENDS).flatMap(([how, end]) => [2, 3, 4, 5].map((at) => ({ how, end, at }))),
  )("adds nothing more once the subscription $how, before round trip $at", async ({ end, at }) => {
    const { workspaceId, id } = await owed(1, T0);
    await setDeliveries(id, { state: "cancelled", settledAt: T0 });
    await setSubscription(id, { disabledAt: T0 });
    await announceLeads(workspaceId, 2, T0);
    await commit(db, enableSubscription(id));
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === at && (await end(workspaceId, id))),
    });
    const range = { since: T0, until: null, states: ["cancelled", "missed"] as const };
    await redeliverAgain(openDatabase(DB), id, range, T0).catch(() => {});
    expect(await statesOf(id)).toEqual({ cancelled: 1 });
    await commit(db, enableSubscription(id));
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    await sweepRanges(T0, T0);
    expect(await statesOf(id)).toEqual({ cancelled: 1 });
    await expectLedger(workspaceId, { created: 1 });
  });

  test("of an event owed to others too keeps the ledger right for each", async () => {
    const { workspaceId, id: back } = await disabled();
    const { id: steady } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 3, T0);
    await dispatchAt(T0, [steady], answered(200));
    await expectLedger(workspaceId, { created: 3 });
    await enableAgain(db, back, T0, NOW);
    await expectLedger(workspaceId, { created: 6, delivered: 3, pending: 3 });
    const query = env.DB.prepare("SELECT owed FROM events WHERE workspace_id = ?").bind(
      workspaceId,
    );
    const { results } = await query.all<{ owed: string }>();
    const owners = results.map(({ owed }) => JSON.parse(owed).toSorted());
    expect(owners).toEqual(Array(3).fill([back, steady].toSorted()));
  });
});

test("a redelivery reads the events that it sends, and a deletion what is pending, whatever else is stored", async () => {
  const now = Date.now();
  const { workspaceId, id, drafts } = await owed(2_000, now - HOUR_MS);
  const last = { lastAt: 1, lastOutcome: "answered", lastStatus: 200, lastDurationMs: 5 } as const;
  await setDeliveries(id, { ...last, state: "delivered", settledAt: 1, attempts: 1 });
  const { DB, rows } = meteredDatabase();
  const metered = openDatabase(DB);
  const eventIds = drafts.slice(0, 20).map((draft) => draft.id);
  /** What `work` returns, if it reads fewer rows than `max`. */
  const within = async <T>(max: number, work: () => Promise<T>) => {
    rows.read = 0;
    const result = await work();
    expect(rows.read).toBeLessThan(max);
    return result;
  };
  const again = () => redeliverAgain(metered, id, eventIds, now);
  expect(await within(1_000, again)).toMatchObject({ count: 20 });
  // Each has its turn by now.
  expect(await within(1_000, again)).toMatchObject({ count: 0 });
  const health = await within(300, () => listHealth(metered, workspaceId));
  expect(health).toMatchObject([{ pending: 20 }]);
  await within(1_000, () => commit(metered, deleteSubscription(workspaceId, id, now)));
  expect(await statesOf(id)).toEqual({ cancelled: 20, delivered: 1_980 });
});
