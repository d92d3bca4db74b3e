import { and, eq, lt } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { PENDING_MAX } from "../../../src/contract/limits.ts";
import { combine, commit, connect } from "../../../src/db/client.ts";
import { deliveries, PRIORITY, workspaces } from "../../../src/db/schema.ts";
import { updatePosition } from "../../../src/db/sweep-positions.ts";
import { LEASE_MS } from "../../../src/dispatch/claims.ts";
import {
  cancelPendingOf,
  deleteSubscription,
  disableSubscription,
  updateSubscription,
} from "../../../src/subscriptions/subscriptions.ts";
import { sweep } from "../../../src/sweep.ts";
import { updateAccess } from "../../../src/workspaces/workspaces.ts";
import { openWorkspace, Platform } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  failingSince,
  HOUR_MS,
  heldDispatch,
  isolated,
  LINES,
  observedDatabase,
  owed,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db, useThreeDatabases } from "../../support/placement.ts";
import { insertDeliveries } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";
import { steadyClock } from "../../support/timers.ts";

useThreeDatabases();

const NOW = Date.UTC(2026, 0, 5, 12);
const lines = keepLog();
const OK = answered(200);
/** No post to a withdrawn subscription starts later than this. */
const WITHDRAWN_MS = 2_000;

afterEach(() => void vi.restoreAllMocks());

type Owner = Awaited<ReturnType<typeof openWorkspace>>;

/** What `setWorkspaceAccess` commits. */
function withdrawAccess(workspaceId: string) {
  return commit(db, combine([updateAccess(workspaceId, false), cancelPendingOf(workspaceId)]));
}

type End = (owed: { workspaceId: string; id: string }, now: number) => Promise<unknown>;
const ENDS: [how: string, End][] = [
  [
    "is deleted",
    ({ workspaceId, id }, now) => commit(db, deleteSubscription(workspaceId, id, now)),
  ],
  ["loses its workspace's access", ({ workspaceId }) => withdrawAccess(workspaceId)],
  ["is disabled", ({ id }, now) => commit(db, disableSubscription(id, now))],
];

test("a dispatch ends nothing while another one leases the subscription", async () => {
  const { id } = await owed(2, NOW);
  const held = await heldDispatch(NOW, id);
  await commit(db, disableSubscription(id, NOW));
  expect(await dispatchAt(NOW, [id], OK)).toEqual([]);
  expect(await statesOf(id)).toEqual({ pending: 2 });
  await held.finish(OK);
  expect((await statesOf(id)).pending).toBeUndefined();
});

const setWriteLock = (workspaceId: string, writeLock: "draining" | null) =>
  db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, workspaceId)).run();

test.each<[when: string, happen: (id: string, workspaceId: string) => Promise<unknown>]>([
  [
    "another one has leased the subscription",
    (id) => setSubscription(id, { leasedBy: "another", leasedUntil: NOW + LEASE_MS }),
  ],
  ["its workspace is about to move", (_, workspaceId) => setWriteLock(workspaceId, "draining")],
])("a dispatch ends nothing once %s", async (_, happen) => {
  const { id, workspaceId } = await owed(1, NOW);
  await commit(db, disableSubscription(id, NOW));
  const { DB } = observedDatabase({
    before: async (trip) => void (trip === 2 && (await happen(id, workspaceId))),
  });
  await dispatchOn(DB, NOW, [id], OK);
  expect(await statesOf(id)).toEqual({ pending: 1 });
  await setWriteLock(workspaceId, null);
});

describe("a subscription that", () => {
  test.each(ENDS)("%s before its dispatch dies has the rest cancelled later", async (_, end) => {
    const withdrawn = await owed(3, NOW);
    const { id } = withdrawn;
    const crashed = await heldDispatch(NOW, id);
    await end(withdrawn, NOW);
    expect(await statesOf(id)).toEqual({ pending: 3 });
    await dispatchAt(NOW + LEASE_MS, [id], OK);
    expect(await statesOf(id)).toEqual({ cancelled: 3 });
    await crashed.finish(OK);
    expect(await statesOf(id)).toEqual({ cancelled: 3 });
  });

  test.each(ENDS)("%s during a dispatch gets no request later than 2 s after", async (_, end) => {
    const withdrawn = await owed(40, NOW);
    const clock = steadyClock();
    const starts: number[] = [];
    const { attempt } = subscriber(async () => {
      if (starts.push(clock.passedMs) === 1) await end(withdrawn, NOW);
      clock.passedMs += 400;
      return OK;
    });
    await dispatchAt(() => NOW + clock.passedMs, [withdrawn.id], attempt);
    expect(starts).toEqual([0, 400, 800]);
    const states = { delivered: starts.length, cancelled: 40 - starts.length };
    expect(await statesOf(withdrawn.id)).toEqual(states);
    await dispatchAt(NOW + HOUR_MS, [withdrawn.id], OK);
    expect(await statesOf(withdrawn.id)).toEqual(states);
  });
});

describe("after a rollback, a pending delivery of an event type that this code does not know", () => {
  const LATER = "lead.merged" as WebhookEvent;
  /** A subscription to leads and to that type, with a pending delivery of each. */
  async function owedLater() {
    const both = await owed(1, NOW);
    const { workspaceId, id } = both;
    await setSubscription(id, { events: ["lead.created", LATER] });
    await insertDeliveries([{ workspaceId, subscriptionId: id, eventId: "later", type: LATER }]);
    return both;
  }

  test.each(ENDS)("is cancelled if its subscription %s", async (_, end) => {
    const both = await owedLater();
    await end(both, NOW);
    await dispatchAt(NOW, [both.id], OK);
    expect(await statesOf(both.id)).toEqual({ cancelled: 2 });
  });

  test("is cancelled if its subscription no longer lists the type, and waits until then", async () => {
    const { id } = await owedLater();
    await commit(db, updateSubscription(id, { description: "CRM" }, NOW));
    await dispatchAt(NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 1, pending: 1 });
    const { circuits, ...failing } = failingSince(1_000, 10);
    const [circuit] = Object.values(circuits);
    await setSubscription(id, { ...failing, circuits: { [LATER]: circuit } as never });
    await commit(db, updateSubscription(id, { events: ["lead.created"] }, NOW));
    await dispatchAt(NOW, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 1, cancelled: 1 });
    // Its failures are forgotten with it.
    const { failingSince: since, ...row } = await subscriptionRow(id);
    expect([row.circuits, since, row.failures]).toEqual([{}, null, 0]);
  });
});

test("no request goes to the old URL of a subscription later than 2 s after a change during a dispatch", async () => {
  const { id } = await owed(20, NOW);
  const url = subscriberUrl();
  const clock = steadyClock();
  const starts: [at: number, url: string][] = [];
  await dispatchAt(
    () => NOW + clock.passedMs,
    [id],
    async (_, target) => {
      if (starts.push([clock.passedMs, target.url]) === 1)
        await commit(db, updateSubscription(id, { url }, NOW));
      clock.passedMs += 400;
      return OK;
    },
  );
  const late = starts.filter(([at]) => at > WITHDRAWN_MS);
  expect(late.length).toBeGreaterThan(1);
  expect(new Set(late.map(([, to]) => to))).toEqual(new Set([url]));
  expect(await statesOf(id)).toEqual({ delivered: 20 });
});

test.each<[door: string, withdraw: (id: string, owner: Owner) => Promise<unknown>]>([
  [
    "setWorkspaceAccess",
    (_, { workspaceId }) => Platform.setWorkspaceAccess({ workspaceId, granted: false }),
  ],
  ["DELETE /v1/webhooks/{id}", (id, { api }) => api.delete(`/v1/webhooks/${id}`)],
])(
  "pending deliveries are cancelled through the queues, without the sweep, by %s",
  async (_, withdraw) => {
    const owner = await openWorkspace();
    const { id } = await subscribe(owner.workspaceId);
    await announceLeads(owner.workspaceId, 2, Date.now());
    await withdraw(id, owner);
    await expect.poll(() => statesOf(id)).toEqual({ cancelled: 2 });
  },
);

describe("a large backlog that is withdrawn", () => {
  test("is cancelled in chunks, and not posted to anyone", async () => {
    const { workspaceId, id } = await owed(0, NOW);
    await storeEvents(workspaceId, id, 1_001, NOW, "pending");
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    expect(await statesOf(id)).toEqual({ pending: 1_001 });
    const statesAfter: Record<string, number>[] = [];
    const after = async () => void statesAfter.push(await statesOf(id));
    await dispatchOn(observedDatabase({ after }).DB, NOW + 1, [id], OK, "slow");
    expect(statesAfter.slice(0, 2)).toEqual([{ pending: 1_001 }, { cancelled: 1_000, pending: 1 }]);
    expect(await statesOf(id)).toEqual({ cancelled: 1_001 });
    expect(await subscriptionRow(id)).toMatchObject({ hasToEnd: false });
    const ledger = await Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 1_001, cancelled: 1_001, addsUp: true });
  });

  test("is not revived if access returns in the meantime", async () => {
    const { workspaceId, id } = await owed(0, NOW);
    await storeEvents(workspaceId, id, 1_002, NOW, "pending");
    let now = NOW;
    const clock = steadyClock();
    const held = await heldDispatch(() => now, id);
    await withdrawAccess(workspaceId);
    await commit(db, updateAccess(workspaceId, true));
    const fresh = (await announceLeads(workspaceId, 3, NOW + 1)).map((draft) => draft.id);
    now += WITHDRAWN_MS;
    clock.passedMs = WITHDRAWN_MS;
    await held.finish(OK);
    await dispatchAt(NOW + LEASE_MS, [id], OK);
    const rows = await deliveriesTo(id);
    const sent = rows.filter(({ state }) => state === "delivered").map(({ eventId }) => eventId);
    expect(sent).toEqual(expect.arrayContaining(fresh));
    expect(await statesOf(id)).toEqual({ cancelled: 1_001, delivered: 4 });
    const ledger = await Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 1_005, pending: 0, addsUp: true });
  });
});

test("an event type that is listed again has its deliveries cancelled, whatever is removed next", async () => {
  const { workspaceId } = await openWorkspace();
  const { id } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  await announceLeads(workspaceId, 2, NOW);
  const lists: WebhookEvent[][] = [
    ["run.completed"],
    ["lead.created", "run.completed"],
    ["lead.created"],
  ];
  for (const events of lists) await commit(db, updateSubscription(id, { events }, NOW));
  await dispatchAt(NOW, [id], OK, "slow");
  expect(await statesOf(id)).toEqual({ cancelled: 2 });
});

test("an update ends deliveries only if it removes an event type that has pending ones", async () => {
  const { id } = await owed(1, NOW);
  const lists: [events: WebhookEvent[], hasToEnd: boolean][] = [
    [["lead.created", "run.completed"], false],
    [["lead.created"], false],
    [["run.completed"], true],
  ];
  for (const [events, hasToEnd] of lists) {
    await commit(db, updateSubscription(id, { events }, NOW));
    expect(await subscriptionRow(id)).toMatchObject({ hasToEnd });
  }
});

test("an event type that is listed later has pending deliveries, whatever was listed before", async () => {
  const { workspaceId } = await openWorkspace();
  const { id } = await subscribe(workspaceId, { events: ["run.completed"] });
  const lists: WebhookEvent[][] = [["run.completed"], ["lead.created", "run.completed"]];
  for (const events of lists) await commit(db, updateSubscription(id, { events }, NOW));
  await announceLeads(workspaceId, 1, NOW);
  const { items } = await Platform.listDeliveries({ webhookId: id });
  expect(items).toMatchObject([{ type: "lead.created", state: "pending" }]);
});

test("what is withdrawn is shown as cancelled at once", async () => {
  const { workspaceId, id, drafts } = await owed(3, NOW);
  await dispatchAt(NOW, [id], answered(400));
  await withdrawAccess(workspaceId);
  await commit(db, updateAccess(workspaceId, true));
  const [fresh] = await announceLeads(workspaceId, 1, NOW + 1);
  expect(await statesOf(id)).toEqual({ pending: 4 });
  const { ledger, listDeliveries, readDelivery, readWebhook } = Platform;
  expect(await ledger({ workspaceId })).toMatchObject({ pending: 1, cancelled: 3, addsUp: true });
  const shown = async (state: "pending" | "cancelled") => {
    const { items } = await listDeliveries({ webhookId: id, state });
    return items.map(({ eventId }) => eventId);
  };
  expect(await shown("pending")).toEqual([fresh?.id]);
  expect((await shown("cancelled")).toSorted()).toEqual(drafts.map((draft) => draft.id).toSorted());
  const eventId = drafts[0]?.id ?? "";
  const first = await readDelivery({ webhookId: id, eventId });
  expect(first).toMatchObject({ state: "cancelled", dueAt: null });
  expect(await readWebhook({ webhookId: id })).toMatchObject({ pending: 1 });
});

test("withdrawing a workspace's access, and cancelling, read no other's deliveries", async () => {
  await owed(500, NOW);
  const { workspaceId, id } = await owed(1, NOW);
  const { DB, rows } = meteredDatabase();
  await commit(connect(DB), cancelPendingOf(workspaceId));
  await dispatchOn(DB, NOW, [id], OK);
  expect(await statesOf(id)).toEqual({ cancelled: 1 });
  expect(rows.read).toBeLessThan(80 + 10 * LINES);
});

test("a deleted subscription without pending deliveries needs no dispatch", async () => {
  const { workspaceId, id } = await owed(1, NOW);
  await dispatchAt(NOW, [id], OK);
  const { wakeUps } = await commit(db, deleteSubscription(workspaceId, id, NOW));
  expect(wakeUps).toEqual([]);
});

describe("too many pending deliveries", () => {
  let about: { workspaceId: string; id: string };
  /** Two deliveries fewer than the bound. */
  const newest = Array.from({ length: PENDING_MAX - 2 }, (_, i) => `evt_z${i}`);

  beforeAll(async () => {
    const workspaceId = await createWorkspace();
    about = { workspaceId, ...(await subscribe(workspaceId)) };
    await insertPending(newest);
  });

  afterEach(reset);

  async function reset() {
    await db
      .delete(deliveries)
      .where(and(eq(deliveries.subscriptionId, about.id), lt(deliveries.eventId, "evt_z")));
    await setSubscription(about.id, { hasToEnd: false, pendingExhaustedAt: null });
  }

  function insertPending(eventIds: string[], values: Partial<typeof deliveries.$inferInsert> = {}) {
    const { workspaceId, id: subscriptionId } = about;
    const row = { workspaceId, subscriptionId, dueAt: NOW + HOUR_MS, ...values };
    return insertDeliveries(eventIds.map((eventId) => ({ eventId, ...row })));
  }

  /** The exhausted deliveries, oldest first; all others are too many to read. */
  function exhaustedRows() {
    const isExhausted = and(
      eq(deliveries.subscriptionId, about.id),
      eq(deliveries.state, "exhausted"),
    );
    return db.select().from(deliveries).where(isExhausted).orderBy(deliveries.eventId);
  }

  /** Runs the scheduled job, and then the dispatch that it wakes. */
  async function limit() {
    const { env, fast, slow } = isolated();
    await sweep(env, NOW);
    const woken = [...fast, ...slow].filter(({ subscriptionId }) => subscriptionId === about.id);
    if (woken.length > 0) await dispatchAt(NOW, [about.id], NOT_SENT);
    return woken.length > 0;
  }
  const NOT_SENT = () => expect.unreachable("nothing is sent");

  test.each([
    ["as many as the bound", ["evt_1", "evt_2"], []],
    ["two beyond the bound", ["evt_1", "evt_2", "evt_3", "evt_4"], ["evt_1", "evt_2"]],
  ])(
    "are exhausted from the oldest on, but for those of a replay: %s",
    async (_, ids, exhausted) => {
      const failed = { lastAt: NOW - HOUR_MS, lastOutcome: "answered", lastStatus: 500 };
      await insertPending(ids, { ...failed, lastDurationMs: 20 });
      await insertPending(["evt_0"], { priority: PRIORITY.replay });
      expect(await limit()).toBe(exhausted.length > 0);
      expect(await exhaustedRows()).toMatchObject(
        exhausted.map((eventId) => ({
          eventId,
          settledAt: NOW,
          lastOutcome: "overflow",
          lastAt: NOW,
          lastStatus: null,
          lastDurationMs: null,
        })),
      );
      expect(await subscriptionRow(about.id)).toMatchObject({
        hasToEnd: false,
        pendingExhaustedAt: exhausted.length > 0 ? NOW : null,
      });
      expect(await limit()).toBe(false);
    },
  );

  test("are exhausted from the oldest on, though it may be due last", async () => {
    await insertPending(["evt_1"], { priority: PRIORITY.retry, dueAt: NOW + 24 * HOUR_MS });
    await insertPending(["evt_2", "evt_3"]);
    await limit();
    expect((await exhaustedRows()).map(({ eventId }) => eventId)).toEqual(["evt_1"]);
  });

  test("are exhausted from the oldest on, but for a resend, which comes first", async () => {
    await insertPending(["evt_0"], { priority: PRIORITY.resend });
    await insertPending(["evt_1", "evt_2", "evt_3"]);
    await limit();
    expect((await exhaustedRows()).map(({ eventId }) => eventId)).toEqual(["evt_1", "evt_2"]);
  });

  test("are exhausted in chunks, and none of those that are cancelled, which are ended first", async () => {
    const ids = Array.from({ length: 1_005 }, (_, i) => `evt_${1_000 + i}`);
    await insertPending(ids);
    await limit();
    expect(await exhaustedRows()).toHaveLength(ids.length - 2);
    expect(lines.join("\n")).toContain(`"deliveries":${ids.length - 2}`);
    await reset();
    await setSubscription(about.id, { cancelledBefore: { "run.completed": 1 }, epoch: 1 });
    await insertPending(ids, { type: "run.completed" });
    await limit();
    expect(await statesOf(about.id)).toEqual({ pending: PENDING_MAX - 2, cancelled: ids.length });
  });

  test("are found by the sweep after one that began behind them", async () => {
    await insertPending(["evt_1", "evt_2", "evt_3"]);
    await updatePosition(db, "pending", about.id);
    expect([await limit(), await limit()]).toEqual([false, true]);
  });

  test("stay pending while their workspace moves, and since when there were too many stays noted", async () => {
    const since = { pendingExhaustedAt: NOW - HOUR_MS };
    await setSubscription(about.id, since);
    await insertPending(["evt_1", "evt_2", "evt_3"]);
    const lock = (writeLock: "locked" | null) =>
      db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, about.workspaceId));
    // A write would fail now, and with it the job for other workspaces.
    await lock("locked");
    await limit();
    expect(await statesOf(about.id)).toEqual({ pending: PENDING_MAX + 1 });
    await lock(null);
    await limit();
    expect(await statesOf(about.id)).toEqual({ pending: PENDING_MAX, exhausted: 1 });
    expect(await subscriptionRow(about.id)).toMatchObject(since);
  });

  test.each([
    ["a success within an hour does not end", HOUR_MS - 1, OK, NOW],
    ["a later success ends", HOUR_MS, OK, null],
    ["a failure does not end", HOUR_MS, answered(400), NOW],
    ["a redirect does not end", HOUR_MS, answered(302), NOW],
  ])("%s the note that deliveries were exhausted", async (_, afterMs, outcome, expected) => {
    const { id } = await owed(1, NOW);
    await setSubscription(id, { concurrency: 6, pendingExhaustedAt: NOW });
    await dispatchAt(NOW + afterMs, [id], outcome);
    expect((await subscriptionRow(id)).pendingExhaustedAt).toBe(expected);
  });
});
