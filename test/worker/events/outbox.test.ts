import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { commit, connect } from "../../../src/db/client.ts";
import { selectWakeUps } from "../../../src/delivery/wake.ts";
import { announce } from "../../../src/events/outbox.ts";
import { deleteSubscription } from "../../../src/subscriptions/subscriptions.ts";
import {
  automationReport,
  eventsOf,
  leadReport,
  type openApi,
  openWorkspace,
  Platform,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import {
  announceLeads,
  announcement,
  createWorkspace,
  deliveriesTo,
  deliveryTo,
  draftLeads,
  failingSince,
  observedDatabase,
  setSubscription,
  subscribe,
  subscribeMany,
} from "../../support/deliveries.ts";
import { db } from "../../support/placement.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

const owedTo = async (id: string) => (await deliveriesTo(id)).map(({ eventId }) => eventId);

/** Expects so many stored events of a workspace, and so many deliveries of them. */
async function expectStored(workspaceId: string, events: number, created: number) {
  expect(await eventsOf(workspaceId)).toHaveLength(events);
  expect(await Platform.ledger({ workspaceId })).toMatchObject({ created, addsUp: true });
}

test("an event has one delivery, due at once, to every subscription that lists its type", async () => {
  const [workspaceId, elsewhere] = [await createWorkspace(), await createWorkspace()];
  const listing = await subscribe(workspaceId, { events: ["run.completed", "lead.created"] });
  const twin = await subscribe(workspaceId, { url: listing.url });
  const other = await subscribe(workspaceId, {
    events: ["run.completed", "automation.status_changed"],
  });
  const foreign = await subscribe(elsewhere);
  const [draft] = await announceLeads(workspaceId, 1, NOW);
  expect(await deliveryTo(listing.id)).toMatchObject({
    ...{ workspaceId, eventId: draft?.id, state: "pending", stepsUsed: 0, dueAt: NOW },
    ...{ pendingSinceEpoch: 0, lastOutcome: null, settledAt: null },
  });
  expect(await owedTo(twin.id)).toEqual([draft?.id]);
  for (const { id } of [other, foreign]) expect(await owedTo(id)).toEqual([]);
  await expectStored(workspaceId, 1, 2);
  await expectStored(elsewhere, 0, 0);
});

test("An event is only sent to subscriptions that are active and were created before it", async () => {
  const workspaceId = await createWorkspace();
  const [disabled = "", deleted = "", active = ""] = await subscribeMany(workspaceId, 3);
  await setSubscription(disabled, { disabledAt: NOW });
  await commit(db, deleteSubscription(workspaceId, deleted, NOW));
  for (const [granted, owed] of [[false, 0] as const, [true, 1] as const]) {
    await Platform.setWorkspaceAccess({ workspaceId, granted });
    await announceLeads(workspaceId, 1, NOW);
    await expectStored(workspaceId, owed + 1, owed);
  }
  await subscribe(workspaceId);
  expect(await owedTo(active)).toHaveLength(1);
  await expectStored(workspaceId, 2, 1);
});

test("an event is stored if a subscription lists it, even a disabled one", async () => {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId, { events: ["run.completed"] });
  for (const [change, stored] of [
    [async () => {}, 0],
    [() => setSubscription(id, { disabledAt: NOW, events: ["lead.created"] }), 1],
    [() => commit(db, deleteSubscription(workspaceId, id, NOW)), 1],
  ] as const) {
    await change();
    await announceLeads(workspaceId, 1, NOW);
    await expectStored(workspaceId, stored, 0);
  }
});

type Change = (given: {
  workspaceId: string;
  automationId: string;
  api: ReturnType<typeof openApi>;
}) => Promise<unknown>;

test.each<[change: string, write: string, change: Change]>([
  [
    "a recorded lead",
    "INSERT ON leads",
    ({ workspaceId }) => Platform.recordLeads({ workspaceId, leads: [leadReport("1")] }),
  ],
  [
    "a recorded run",
    "INSERT ON runs",
    ({ workspaceId, automationId }) =>
      Platform.recordRuns({ workspaceId, runs: [runReport("1", automationId)] }),
  ],
  [
    "a recorded status",
    "UPDATE ON automations",
    ({ workspaceId }) =>
      Platform.recordAutomations({
        workspaceId,
        automations: [automationReport("1", { status: "paused" })],
      }),
  ],
  [
    "a status that a client changes",
    "UPDATE ON automations",
    async ({ automationId, api }) => {
      const { status } = await api.patch(`/v1/automations/${automationId}`, { status: "paused" });
      if (status !== 200) throw new Error(`the response is ${status}`);
    },
  ],
])(
  "%s, its event and its deliveries are stored together or not at all",
  async (_, write, change) => {
    const { workspaceId, api } = await openWorkspace();
    await subscribe(workspaceId, { events: WebhookEvent.options });
    const automationId = await recordAutomation(workspaceId, { reference: "1" });
    const stored = () =>
      env.DB.prepare(
        `SELECT (SELECT count(*) FROM leads WHERE workspace_id = ?1) AS leads,
          (SELECT count(*) FROM runs WHERE workspace_id = ?1) AS runs,
          (SELECT status FROM automations WHERE workspace_id = ?1) AS status,
          (SELECT count(*) FROM events WHERE workspace_id = ?1) AS events,
          (SELECT count(*) FROM deliveries WHERE workspace_id = ?1) AS deliveries`,
      )
        .bind(workspaceId)
        .first();
    const before = { leads: 0, runs: 0, status: "active", events: 0, deliveries: 0 };
    for (const refused of [write, "INSERT ON events", "INSERT ON deliveries"]) {
      await env.DB.exec(
        `CREATE TRIGGER refuses BEFORE ${refused} BEGIN SELECT RAISE(ABORT, 'it is refused'); END`,
      );
      const changed = change({ workspaceId, automationId, api });
      await expect(changed.finally(() => env.DB.exec("DROP TRIGGER refuses"))).rejects.toThrow(
        /it is refused|500/,
      );
      expect(await stored()).toEqual(before);
    }
    await change({ workspaceId, automationId, api });
    const after = await stored();
    expect(after).toMatchObject({ events: 1, deliveries: 1 });
    const { leads, runs, status } = before;
    expect(after).not.toMatchObject({ leads, runs, status });
  },
);

test("an event is not announced if its condition does not hold", async () => {
  const workspaceId = await createWorkspace();
  await subscribe(workspaceId);
  for (const [condition, count] of [
    [sql`false`, 0],
    [sql`true`, 1],
  ] as const) {
    await commit(
      db,
      announce(workspaceId, "lead.created", draftLeads(1, NOW), () => condition, NOW),
    );
    await expectStored(workspaceId, count, count);
  }
});

test("an event that is announced twice reaches no subscription that was created in between", async () => {
  const workspaceId = await createWorkspace();
  const drafts = draftLeads(1, NOW);
  // No lead is recorded, so the condition holds both times, as after a removal.
  for (const deliveries of [1, 0]) {
    const { id } = await subscribe(workspaceId);
    await commit(db, announcement(workspaceId, drafts, NOW));
    expect(await owedTo(id)).toHaveLength(deliveries);
  }
  await expectStored(workspaceId, 1, 1);
});

test("fan-out to 20 subscriptions is one statement, in one round trip with the record", async () => {
  const workspaceId = await createWorkspace();
  const subscribed = await subscribeMany(workspaceId, 20);
  const drafts = draftLeads(100, NOW);
  const { DB, trips } = observedDatabase();
  const news = announcement(workspaceId, drafts, NOW);
  const wakeUps = selectWakeUps(workspaceId, NOW);
  const done = await commit(connect(DB), { news, wakeUps });
  expect(trips).toHaveLength(1);
  const writes = trips.flat().filter((text) => /INSERT INTO "?deliveries/i.test(text));
  expect(writes).toHaveLength(1);
  for (const id of subscribed)
    expect((await owedTo(id)).sort()).toEqual(drafts.map((draft) => draft.id).sort());
  expect(done.wakeUps.map(({ subscriptionId }) => subscriptionId).sort()).toEqual(
    subscribed.sort(),
  );
});

test("an event sends a wake-up message for each in its queue", async () => {
  const workspaceId = await createWorkspace();
  const [fast = "", slow = "", probed = "", waiting = ""] = await subscribeMany(workspaceId, 4);
  await subscribe(workspaceId, { events: ["run.completed"] });
  await setSubscription(slow, { slow: true });
  await setSubscription(probed, { slow: true, ...failingSince(NOW, 1, NOW) });
  await setSubscription(waiting, {
    slow: true,
    ...failingSince(NOW, 1, NOW + 5_000),
    nextMessageAt: NOW + 5_000,
  });
  const news = announcement(workspaceId, draftLeads(2, NOW), NOW);
  const { wakeUps } = await commit(db, { news, wakeUps: selectWakeUps(workspaceId, NOW) });
  const queues = wakeUps.map(({ subscriptionId, queue }) => [subscriptionId, queue]);
  expect(queues.toSorted()).toEqual(
    [
      [fast, "fast"],
      [slow, "slow"],
      [probed, "slow"],
    ].toSorted(),
  );
});
