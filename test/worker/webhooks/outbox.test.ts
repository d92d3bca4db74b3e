import { exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { commit, inOrder, openDatabase } from "../../../src/db/client.ts";
import { cancelVoid } from "../../../src/webhooks/endings.ts";
import { announce, commitAnnounced } from "../../../src/webhooks/outbox.ts";
import { deleteSubscription } from "../../../src/webhooks/subscriptions.ts";
import { eventsOf } from "../../support/api.ts";
import {
  announceLeads,
  announcement,
  createWorkspace,
  db,
  deliveriesTo,
  deliveryTo,
  draftLeads,
  observedDatabase,
  setSubscription,
  subscribe,
} from "../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

async function owedTo(subscriptionId: string): Promise<string[]> {
  return (await deliveriesTo(subscriptionId)).map(({ eventId }) => eventId);
}

async function ledgerOf(workspaceId: string) {
  return exports.Platform.ledger({ workspaceId });
}

describe("an event", () => {
  test("is owed once, and immediately, to every subscription of its workspace that lists its kind", async () => {
    const [workspaceId, elsewhere] = [await createWorkspace(), await createWorkspace()];
    const listing = await subscribe(workspaceId, { events: ["run.completed", "lead.created"] });
    const twin = await subscribe(workspaceId, { url: listing.url });
    const other = await subscribe(workspaceId, {
      events: ["run.completed", "automation.status_changed"],
    });
    const foreign = await subscribe(elsewhere);
    const [draft] = await announceLeads(workspaceId, 1, NOW);
    expect(await deliveryTo(listing.id)).toMatchObject({
      ...{ workspaceId, eventId: draft?.id, state: "pending", attempts: 0, dueAt: NOW },
      ...{ generation: 0, lastOutcome: null, settledAt: null },
    });
    expect(await owedTo(twin.id)).toEqual([draft?.id]);
    expect(await owedTo(other.id)).toEqual([]);
    expect(await owedTo(foreign.id)).toEqual([]);
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 2, pending: 2, addsUp: true });
    expect(await ledgerOf(elsewhere)).toMatchObject({ created: 0, addsUp: true });
  });

  test("belongs to what its subscription is now, though earlier deliveries are still being cancelled", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await setSubscription(id, { generation: 3, cancelling: true });
    await announceLeads(workspaceId, 1, NOW);
    await commit(db, cancelVoid([id], NOW));
    expect(await deliveryTo(id)).toMatchObject({ state: "pending" });
  });

  test("is not owed to a disabled or deleted subscription, nor to one created later", async () => {
    const workspaceId = await createWorkspace();
    const disabled = await subscribe(workspaceId);
    await setSubscription(disabled.id, { disabledAt: NOW });
    const deleted = await subscribe(workspaceId);
    await commit(db, deleteSubscription(workspaceId, deleted.id, NOW));
    await announceLeads(workspaceId, 1, NOW);
    const late = await subscribe(workspaceId);
    for (const { id } of [disabled, deleted, late]) expect(await owedTo(id)).toEqual([]);
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 0, addsUp: true });
  });

  test("is not owed in a workspace without access, but stored", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await announceLeads(workspaceId, 1, NOW);
    expect(await owedTo(id)).toEqual([]);
    expect(await eventsOf(workspaceId)).toHaveLength(1);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: true });
    await announceLeads(workspaceId, 1, NOW);
    expect(await owedTo(id)).toHaveLength(1);
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 1, addsUp: true });
  });

  test("is announced once, and not owed to a subscription created between a lost reply and the retry", async () => {
    const workspaceId = await createWorkspace();
    const before = await subscribe(workspaceId);
    const statements = announcement(workspaceId, draftLeads(2, NOW), NOW);
    await commit(db, statements);
    const between = await subscribe(workspaceId);
    await commit(db, statements);
    expect(await owedTo(before.id)).toHaveLength(2);
    expect(await owedTo(between.id)).toEqual([]);
    expect(await eventsOf(workspaceId)).toHaveLength(2);
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 2, pending: 2, addsUp: true });
  });

  test("that no subscription lists is not stored; one that only a disabled one lists is", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { events: ["run.completed"] });
    await announceLeads(workspaceId, 1, NOW);
    expect(await eventsOf(workspaceId)).toEqual([]);
    await setSubscription(id, { disabledAt: NOW, events: ["lead.created"] });
    await announceLeads(workspaceId, 1, NOW);
    expect(await eventsOf(workspaceId)).toHaveLength(1);
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    await announceLeads(workspaceId, 1, NOW);
    expect(await eventsOf(workspaceId)).toHaveLength(1);
    expect(await ledgerOf(workspaceId)).toMatchObject({ created: 0, addsUp: true });
  });

  test("is not announced if its condition does not hold", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await commit(db, announce(workspaceId, "lead.created", draftLeads(2, NOW), sql`false`, NOW));
    expect(await owedTo(id)).toEqual([]);
    expect(await eventsOf(workspaceId)).toEqual([]);
  });

  test("and its deliveries commit together with its record or not at all", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const news = announcement(workspaceId, draftLeads(1, NOW), NOW);
    const impossible = sql`INSERT INTO leads (id) VALUES ('lea_1')`;
    await expect(
      commitAnnounced(db, inOrder([news, impossible]), [workspaceId], NOW),
    ).rejects.toThrow(/NOT NULL/);
    expect(await owedTo(id)).toEqual([]);
    expect(await eventsOf(workspaceId)).toEqual([]);
  });
});

describe("fan-out", () => {
  test("to 20 subscriptions is one statement, in one round trip with the record", async () => {
    const workspaceId = await createWorkspace();
    const subscribed = await Promise.all(Array.from({ length: 20 }, () => subscribe(workspaceId)));
    const drafts = draftLeads(100, NOW);
    const { DB, trips } = observedDatabase();
    const news = announcement(workspaceId, drafts, NOW);
    const { wakes } = await commitAnnounced(openDatabase(DB), news, [workspaceId], NOW);
    expect(trips).toHaveLength(1);
    const writes = trips.flat().filter((text) => /INSERT INTO "?deliveries/i.test(text));
    expect(writes).toHaveLength(1);
    for (const { id } of subscribed)
      expect((await owedTo(id)).sort()).toEqual(drafts.map((draft) => draft.id).sort());
    expect(wakes.map(({ subscriptionId }) => subscriptionId).sort()).toEqual(
      subscribed.map(({ id }) => id).sort(),
    );
  });

  test("wakes each in its lane, but not those that wait or have nothing due", async () => {
    const workspaceId = await createWorkspace();
    const [fast, slow, probed, waiting] = [
      await subscribe(workspaceId),
      await subscribe(workspaceId),
      await subscribe(workspaceId),
      await subscribe(workspaceId),
    ];
    await subscribe(workspaceId, { events: ["run.completed"] });
    const ids = [fast.id, slow.id, probed.id];
    await setSubscription(slow.id, { slow: true });
    await setSubscription(probed.id, { backoff: 1, nextAt: NOW });
    await setSubscription(waiting.id, { backoff: 1, nextAt: NOW + 1 });
    const news = announcement(workspaceId, draftLeads(2, NOW), NOW);
    const { wakes } = await commitAnnounced(db, news, [workspaceId], NOW);
    expect(
      wakes.toSorted((a, b) => ids.indexOf(a.subscriptionId) - ids.indexOf(b.subscriptionId)),
    ).toEqual([
      { subscriptionId: fast.id, lane: "fast" },
      { subscriptionId: slow.id, lane: "slow" },
      { subscriptionId: probed.id, lane: "slow" },
    ]);
  });
});
