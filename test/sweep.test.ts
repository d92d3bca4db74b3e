import { createScheduledController } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { commit } from "../src/db/client.ts";
import { deliveries, subscriptions } from "../src/db/schema.ts";
import worker from "../src/index.ts";
import { deleteSubscription } from "../src/model/subscriptions.ts";
import { sweep } from "../src/sweep.ts";
import { eventsOf, openWorkspace, recordAutomation } from "./support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  db,
  deliveriesTo,
  HOUR_MS,
  heldRun,
  isolated,
  MINUTE_MS,
  noticesOf,
  observedDatabase,
  owed,
  receivedBy,
  runAt,
  type Sent,
  statesOf,
  subscribe,
} from "./support/deliveries.ts";

const NOW = Date.UTC(2026, 5, 5, 12);

/** What of `sent` was for this subscription. */
function to(id: string, sent: Sent[]): Sent[] {
  return sent.filter(({ subscriptionId }) => subscriptionId === id);
}

describe("the sweep", () => {
  test("wakes what is overdue by more than 60 s, and nothing else", async () => {
    const overdue = await owed(3, NOW - 61_000);
    const oldest = await owed(1, NOW - 20 * DAY_MS);
    const notYet = await owed(1, NOW - 59_000);
    const later = await owed(1, NOW + HOUR_MS);
    const done = await owed(1, NOW - HOUR_MS);
    await runAt(NOW - HOUR_MS, [done.id], answered(200));
    const deployment = isolated();
    await sweep(deployment.env, NOW);
    for (const { id } of [overdue, oldest])
      expect(to(id, deployment.healthy)).toEqual([{ subscriptionId: id, delaySeconds: 0 }]);
    for (const { id } of [notYet, later, done]) expect(to(id, deployment.healthy)).toEqual([]);
    expect(deployment.failing).toEqual([]);
  });

  test("wakes failing subscriptions in the failing lane", async () => {
    const { id } = await owed(1, NOW);
    await runAt(NOW, [id], answered(500));
    const [row] = await deliveriesTo(id);
    const deployment = isolated();
    await sweep(deployment.env, (row?.dueAt ?? 0) + MINUTE_MS + 1);
    expect(to(id, deployment.healthy)).toEqual([]);
    expect(to(id, deployment.failing)).toHaveLength(1);
  });

  test("has a delivery whose message was lost delivered, by the queues of the deployment", async () => {
    const { id, url, drafts } = await owed(2, Date.now() - 2 * MINUTE_MS);
    await sweep(env, Date.now());
    await expect.poll(() => statesOf(id), { timeout: 5_000 }).toEqual({ delivered: 2 });
    const bodies = (await receivedBy({ url })).map(({ body }) => body);
    expect(bodies.toSorted()).toEqual(drafts.map(({ body }) => body).toSorted());
  });

  test("wakes for a lease that nobody came back to", async () => {
    const { id } = await owed(1, NOW);
    await heldRun(NOW, id);
    const early = isolated();
    await sweep(early.env, NOW + 2 * MINUTE_MS - 1000);
    expect(to(id, early.healthy)).toEqual([]);
    const late = isolated();
    await sweep(late.env, NOW + 2 * MINUTE_MS + 1000);
    expect(to(id, late.healthy)).toHaveLength(1);
    await runAt(NOW + 2 * MINUTE_MS + 1000, [id], answered(200));
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("wakes for what a deleted subscription left under a lease, so that it is cancelled", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await db
      .update(deliveries)
      .set({ claim: "crashed", dueAt: NOW + MINUTE_MS })
      .where(sql`subscription_id = ${id}`);
    await commit(db, deleteSubscription(workspaceId, id, NOW));
    const deployment = isolated();
    await sweep(deployment.env, NOW + 3 * MINUTE_MS);
    expect(to(id, deployment.healthy)).toHaveLength(1);
    await runAt(NOW + 3 * MINUTE_MS, [id], answered(200));
    expect(await statesOf(id)).toEqual({ cancelled: 1 });
  });

  test("runs at the cron's time", async () => {
    const { id } = await owed(1, NOW);
    for (const [scheduledTime, woken] of [
      [new Date(NOW + 59_000), 0],
      [new Date(NOW + 61_000), 1],
    ] as const) {
      const deployment = isolated();
      await worker.scheduled(createScheduledController({ scheduledTime }), deployment.env);
      expect(to(id, deployment.healthy)).toHaveLength(woken);
    }
  });
});

describe("the retention of 30 days", () => {
  const before = NOW - 30 * DAY_MS;

  test("deletes events that are older, with their deliveries, once these are as old, too", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 3, before - HOUR_MS);
    const states = ["delivered", "exhausted", "cancelled"] as const;
    for (const [i, { eventId }] of (await deliveriesTo(id)).entries())
      await db
        .update(deliveries)
        .set({ state: states[i], settledAt: before - 1 })
        .where(sql`event_id = ${eventId}`);
    const [young] = await announceLeads(workspaceId, 1, before);
    await runAt(before, [id], answered(200));
    await sweep(isolated().env, NOW);
    expect((await eventsOf(workspaceId)).map((event) => event.id)).toEqual([young?.id]);
    expect((await deliveriesTo(id)).map(({ eventId }) => eventId)).toEqual([young?.id]);
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 1, delivered: 1, exhausted: 0, addsUp: true });
  });

  test("deletes old events that nobody was owed", async () => {
    const workspaceId = await createWorkspace();
    await announceLeads(workspaceId, 2, before - 1);
    await announceLeads(workspaceId, 1, before);
    await sweep(isolated().env, NOW);
    expect(await eventsOf(workspaceId)).toHaveLength(1);
  });

  test("keeps what is pending, however old, and what was settled since", async () => {
    const pending = await owed(1, NOW - 300 * DAY_MS);
    const recent = await owed(1, NOW - 300 * DAY_MS);
    await runAt(before, [recent.id], answered(200));
    await sweep(isolated().env, NOW);
    expect(await statesOf(pending.id)).toEqual({ pending: 1 });
    expect(await statesOf(recent.id)).toEqual({ delivered: 1 });
    for (const { workspaceId } of [pending, recent])
      expect(await eventsOf(workspaceId)).toHaveLength(1);
    await sweep(isolated().env, NOW + 1);
    expect(await statesOf(recent.id)).toEqual({});
    expect(await eventsOf(recent.workspaceId)).toEqual([]);
  });

  test("keeps an event whole while one of its deliveries is kept", async () => {
    const workspaceId = await createWorkspace();
    const [done, waiting] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    await announceLeads(workspaceId, 1, NOW - 40 * DAY_MS);
    await runAt(NOW - 40 * DAY_MS, [done.id], answered(200));
    await sweep(isolated().env, NOW);
    expect(await statesOf(done.id)).toEqual({ delivered: 1 });
    expect(await statesOf(waiting.id)).toEqual({ pending: 1 });
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 2, delivered: 1, pending: 1, addsUp: true });
  });

  test("leaves a ledger that adds up, in all", async () => {
    expect(await exports.Platform.ledger({})).toMatchObject({ addsUp: true });
  });
});

describe("a part of the sweep that fails", () => {
  const BROKEN = new Error("D1_ERROR: disk I/O error");

  /** Something for each part of the sweep to do. */
  async function work() {
    const overdue = await owed(1, NOW - HOUR_MS);
    const expired = await owed(1, NOW - 40 * DAY_MS);
    await runAt(NOW - 40 * DAY_MS, [expired.id], answered(200));
    const disabled = await owed(10, NOW - 100 * HOUR_MS);
    await db
      .update(subscriptions)
      .set({ failures: 9, failingSince: NOW - 100 * HOUR_MS })
      .where(sql`id = ${disabled.id}`);
    await runAt(NOW - HOUR_MS, [disabled.id], answered(500), 1);
    const { workspaceId } = await openWorkspace();
    const removed = await recordAutomation(workspaceId);
    await exports.Platform.removeAutomations({ workspaceId, ids: [removed] });
    return { overdue, expired, disabled, removed };
  }

  test.each([
    ["waking", /RECURSIVE waiting/i],
    ["the e-mails", /from "notices"/i],
    ["the retention", /DELETE FROM "?events/i],
    ["the removals", /DELETE FROM "?removals/i],
  ])("stops no other, and the sweep then throws: %s", async (part, query) => {
    const { overdue, expired, disabled, removed } = await work();
    const { DB } = observedDatabase({
      before: (_, texts) => {
        if (texts.some((text) => query.test(text))) throw BROKEN;
      },
    });
    const deployment = isolated({ DB });
    await expect(sweep(deployment.env, NOW)).rejects.toThrow("1 parts of the sweep failed");
    expect(to(overdue.id, deployment.healthy)).toHaveLength(part === "waking" ? 0 : 1);
    expect(await noticesOf(disabled.id)).toMatchObject([
      { sentAt: part === "the e-mails" ? null : NOW },
    ]);
    expect(await statesOf(expired.id)).toEqual(part === "the retention" ? { delivered: 1 } : {});
    expect(await isThere(removed)).toBe(part === "the removals");
  });

  test("is made up for by the next sweep", async () => {
    const { overdue, expired, disabled, removed } = await work();
    const { DB } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    await expect(sweep(isolated({ DB }).env, NOW)).rejects.toThrow("4 parts of the sweep failed");
    const deployment = isolated();
    await sweep(deployment.env, NOW + MINUTE_MS);
    expect(to(overdue.id, deployment.healthy)).toHaveLength(1);
    expect(await noticesOf(disabled.id)).toMatchObject([{ sentAt: NOW + MINUTE_MS }]);
    expect(await statesOf(expired.id)).toEqual({});
    expect(await isThere(removed)).toBe(false);
  });

  async function isThere(id: string): Promise<boolean> {
    const row = env.DB.prepare("SELECT 1 FROM automations WHERE id = ?").bind(id);
    return (await row.first()) !== null;
  }
});
