import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { combine, commit, openDatabase } from "../../../src/db/client.ts";
import type { Outcome } from "../../../src/delivery/outcome.ts";
import { LEASE_MS } from "../../../src/delivery/round.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import {
  cancelPendingOf,
  deleteSubscription,
  disableSubscription,
  updateSubscription,
} from "../../../src/subscriptions/subscriptions.ts";
import { updateAccess } from "../../../src/workspaces/workspaces.ts";
import { openWorkspace } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  db,
  dispatchAt,
  dispatchOn,
  HOUR_MS,
  heldDispatch,
  LINES,
  observedDatabase,
  owed,
  setSubscription,
  statesOf,
  streakSince,
  subscribe,
  subscriber,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
/** No post to a withdrawn subscription starts later than this. */
const WITHDRAWN_MS = 2_000;

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

test("a dispatch makes one round while another one leases a subscription that is cancelled", async () => {
  const { id } = await owed(2, NOW);
  const late = await heldDispatch(NOW, id);
  await commit(db, disableSubscription(id, NOW));
  const { DB, trips } = observedDatabase();
  await dispatchOn(DB, NOW, [id], OK);
  expect(trips).toHaveLength(1);
  await late.finish(OK);
});

test("a dispatch marks nothing as cancelled once another one has leased the subscription", async () => {
  const { id } = await owed(1, NOW);
  await commit(db, disableSubscription(id, NOW));
  const lease = { leasedBy: "another", leasedUntil: NOW + LEASE_MS };
  const { DB } = observedDatabase({
    before: async (trip) => void (trip === 2 && (await setSubscription(id, lease))),
  });
  await dispatchOn(DB, NOW, [id], OK);
  expect(await statesOf(id)).toEqual({ pending: 1 });
});

describe("a subscription that", () => {
  test("is deleted during its posts has them recorded, though the rest is cancelled meanwhile", async () => {
    const { workspaceId, id } = await owed(20, NOW);
    await setSubscription(id, { concurrency: 3 });
    const [noticed, cancelled] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { DB } = observedDatabase({
      after(trip) {
        if (trip === 2) noticed.resolve();
        if (trip === 3) cancelled.resolve();
      },
    });
    const { posts, attempt } = subscriber(async () => {
      if (posts.length === 1) await commit(db, deleteSubscription(workspaceId, id, NOW));
      else await (posts.length === 2 ? noticed : cancelled).promise;
      return OK;
    });
    // An outcome is recorded a second later, although other posts are in flight.
    const startedAt = Date.now();
    await dispatchOn(DB, () => NOW + Date.now() - startedAt, [id], attempt);
    expect(posts.length).toBeGreaterThan(2);
    const states = { delivered: posts.length, cancelled: 20 - posts.length };
    expect(await statesOf(id)).toEqual(states);
  });

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

  test.each(ENDS)("%s during a dispatch gets no post later than 2 s after", async (_, end) => {
    const withdrawn = await owed(40, NOW);
    const { DB } = observedDatabase({ before: (trip) => (trip > 1 ? sleep(100) : undefined) });
    let now = NOW;
    const starts: number[] = [];
    const { attempt } = subscriber(async () => {
      if (starts.push(now) === 1) await end(withdrawn, NOW);
      now += 400;
      await sleep(2);
      return OK;
    });
    await dispatchOn(DB, () => now, [withdrawn.id], attempt);
    expect(starts.length).toBeGreaterThan(1);
    expect(starts.filter((at) => at - NOW > WITHDRAWN_MS)).toEqual([]);
    const states = { delivered: starts.length, cancelled: 40 - starts.length };
    expect(await statesOf(withdrawn.id)).toEqual(states);
    await dispatchAt(now + HOUR_MS, [withdrawn.id], OK);
    expect(await statesOf(withdrawn.id)).toEqual(states);
  });
});

test("a subscription that is deleted while the clock is set back gets no other post", async () => {
  const { workspaceId, id } = await owed(3, NOW - 2 * HOUR_MS);
  let now = NOW;
  const { posts, attempt } = subscriber(async () => {
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    now = NOW - HOUR_MS;
    return OK;
  });
  await dispatchAt(() => now, [id], attempt);
  expect(posts).toHaveLength(1);
});

test("a subscription whose URL changes during a dispatch gets no post at the old one later than 2 s after", async () => {
  const { id } = await owed(20, NOW);
  const { DB } = observedDatabase({ before: (trip) => (trip > 1 ? sleep(100) : undefined) });
  const url = subscriberUrl();
  let now = NOW;
  const starts: [at: number, url: string][] = [];
  await dispatchOn(
    DB,
    () => now,
    [id],
    async (_, target) => {
      if (starts.push([now, target.url]) === 1) await commit(db, updateSubscription(id, { url }));
      now += 400;
      await sleep(2);
      return OK;
    },
  );
  const late = starts.filter(([at]) => at - NOW > WITHDRAWN_MS);
  expect(late.length).toBeGreaterThan(1);
  expect(new Set(late.map(([, to]) => to))).toEqual(new Set([url]));
  expect(await statesOf(id)).toMatchObject({ delivered: starts.length });
});

describe("a post to the old URL that fails makes the new one wait for nothing,", () => {
  const AWAY = { kind: "timed_out" } as const;
  const ENDURING = streakSince(NOW - HOUR_MS, 9, { outageStep: 9 });

  test("if it ends before the change is noticed", async () => {
    const { id } = await owed(2, NOW);
    await setSubscription(id, ENDURING);
    const held = await heldDispatch(NOW, id);
    await commit(db, updateSubscription(id, { url: subscriberUrl() }));
    const [left] = await held.finish(AWAY);
    expect(left).toMatchObject({ blockedUntil: 0, streak: null });
  });

  test("if it ends while the change is noticed", async () => {
    const { id } = await owed(2, NOW);
    await setSubscription(id, { ...ENDURING, concurrency: 2 });
    const second = Promise.withResolvers<Outcome>();
    const { DB } = observedDatabase({
      async before(trip) {
        if (trip === 2) await commit(db, updateSubscription(id, { url: subscriberUrl() }));
      },
      async after(trip) {
        if (trip !== 2) return;
        second.resolve(AWAY);
        await sleep(10);
      },
    });
    const { posts, attempt } = subscriber(() => (posts.length === 1 ? OK : second.promise));
    // An outcome is recorded a second later, although another post is in flight.
    const startedAt = Date.now();
    await dispatchOn(DB, () => NOW + Date.now() - startedAt, [id], attempt);
    expect(posts).toHaveLength(2);
    expect(await subscriptionRow(id)).toMatchObject({ blockedUntil: 0, streak: null });
  });

  test("and if it ends afterwards", async () => {
    const { id } = await owed(3, NOW);
    await setSubscription(id, { ...ENDURING, concurrency: 2 });
    const noticed = Promise.withResolvers<void>();
    const { DB } = observedDatabase({ after: (trip) => void (trip === 2 && noticed.resolve()) });
    let [now, posts] = [NOW, 0];
    const attempt = async () => {
      if (++posts === 1) {
        await noticed.promise;
        await sleep(10);
        return AWAY;
      }
      await commit(db, updateSubscription(id, { url: subscriberUrl() }));
      // The third one waits for an exchange.
      now += WITHDRAWN_MS - 100;
      return OK;
    };
    await dispatchOn(DB, () => now, [id], attempt);
    // What failed at the old URL is due at the new one.
    expect(await statesOf(id)).toEqual({ delivered: 3 });
    expect(await subscriptionRow(id)).toMatchObject({ blockedUntil: 0, failingSince: null });
  });
});

describe("a large backlog that is withdrawn", () => {
  test("is cancelled in chunks, and not posted to anyone", async () => {
    const { workspaceId, id } = await owed(5_000, NOW);
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    expect(await statesOf(id)).toEqual({ pending: 5_000 });
    const statesAfter: Record<string, number>[] = [];
    const after = async () => void statesAfter.push(await statesOf(id));
    await dispatchOn(observedDatabase({ after }).DB, NOW + 1, [id], OK, "slow");
    expect(statesAfter.slice(0, 3)).toEqual([
      { pending: 5_000 },
      { cancelled: 1_000, pending: 4_000 },
      { cancelled: 2_000, pending: 3_000 },
    ]);
    expect(await statesOf(id)).toEqual({ cancelled: 5_000 });
    expect(await subscriptionRow(id)).toMatchObject({ cancelling: false });
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 5_000, cancelled: 5_000, addsUp: true });
  });

  test.each<[door: string, withdraw: (id: string, owner: Owner) => Promise<unknown>]>([
    ["disableWebhook", (webhookId) => exports.Platform.disableWebhook({ webhookId })],
    ["deleteWebhook", (webhookId) => exports.Platform.deleteWebhook({ webhookId })],
    [
      "setWorkspaceAccess",
      (_, { workspaceId }) => exports.Platform.setWorkspaceAccess({ workspaceId, granted: false }),
    ],
    ["DELETE /v1/webhooks/{id}", (id, { api }) => api.delete(`/v1/webhooks/${id}`)],
  ])("is cancelled to the end through the queues, without the sweep: %s", async (_, withdraw) => {
    const owner = await openWorkspace();
    const { id } = await subscribe(owner.workspaceId);
    await announceLeads(owner.workspaceId, 1_100, Date.now());
    await withdraw(id, owner);
    await expect.poll(() => statesOf(id)).toEqual({ cancelled: 1_100 });
  });

  test("is not revived if access returns in the meantime", async () => {
    const { workspaceId, id } = await owed(5_000, NOW);
    let now = NOW;
    const held = await heldDispatch(() => now, id);
    await withdrawAccess(workspaceId);
    await commit(db, updateAccess(workspaceId, true));
    const fresh = (await announceLeads(workspaceId, 3, NOW + 1)).map((draft) => draft.id);
    now += WITHDRAWN_MS;
    await held.finish(OK);
    const { posts, attempt } = subscriber();
    for (let i = 0; i < 4; i++) await dispatchAt(NOW + LEASE_MS + i, [id], attempt);
    expect(posts.toSorted()).toEqual(fresh.toSorted());
    expect(await statesOf(id)).toEqual({ cancelled: 4_999, delivered: 4 });
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 5_003, pending: 0, addsUp: true });
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
  for (const events of lists) await commit(db, updateSubscription(id, { events }));
  await dispatchAt(NOW, [id], OK, "slow");
  expect(await statesOf(id)).toEqual({ cancelled: 2 });
});

test("an event type that is listed later has pending deliveries, whatever was listed before", async () => {
  const { workspaceId } = await openWorkspace();
  const { id } = await subscribe(workspaceId, { events: ["run.completed"] });
  const lists: WebhookEvent[][] = [["run.completed"], ["lead.created", "run.completed"]];
  for (const events of lists) await commit(db, updateSubscription(id, { events }));
  await announceLeads(workspaceId, 1, NOW);
  const { items } = await exports.Platform.listDeliveries({ webhookId: id });
  expect(items).toMatchObject([{ type: "lead.created", state: "pending" }]);
});

test("what is withdrawn is shown as cancelled at once", async () => {
  const { workspaceId, id, drafts } = await owed(3, NOW);
  await dispatchAt(NOW, [id], answered(400));
  await withdrawAccess(workspaceId);
  await commit(db, updateAccess(workspaceId, true));
  const [fresh] = await announceLeads(workspaceId, 1, NOW + 1);
  expect(await statesOf(id)).toEqual({ pending: 4 });
  const { ledger, listDeliveries, readDelivery, readWebhook } = exports.Platform;
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
  await commit(openDatabase(DB), cancelPendingOf(workspaceId));
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
