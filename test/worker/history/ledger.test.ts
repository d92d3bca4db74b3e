import { beforeAll, describe, expect, test } from "vitest";
import { RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { commit, connect } from "../../../src/db/client.ts";
import { deliveries, events } from "../../../src/db/schema.ts";
import { findBacklog, findLedger, sumBacklogs, sumLedgers } from "../../../src/history/ledger.ts";
import { cancelPendingOf } from "../../../src/subscriptions/subscriptions.ts";
import { updateAccess } from "../../../src/workspaces/workspaces.ts";
import { EMPTY_LEDGER } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  deliveriesTo,
  dispatchAt,
  failAt,
  failingSince,
  MINUTE_MS,
  owed,
  setDeliveries,
  setSubscription,
  subscribe,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db } from "../../support/placement.ts";
import { storeEvents } from "../../support/stored-events.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const ago = (minutes: number) => NOW - minutes * MINUTE_MS;

/** A workspace with 3 delivered, 1 exhausted, 3 cancelled and 2 pending deliveries. */
async function busyWorkspace(): Promise<string> {
  const workspaceId = await createWorkspace();
  const fine = await subscribe(workspaceId);
  await announceLeads(workspaceId, 3, ago(20));
  await dispatchAt(ago(20), [fine.id], answered(200));
  const failing = await subscribe(workspaceId, { events: ["run.completed", "lead.created"] });
  await announceLeads(workspaceId, 1, ago(10));
  await setDeliveries(failing.id, { stepsUsed: RETRY_WAITS_SECONDS.length });
  await failAt(failing.id, [ago(10)], answered(500));
  await announceLeads(workspaceId, 1, ago(9));
  // As `setWorkspaceAccess`, but for its wake: the queue's own consumer would deliver what is announced next.
  await commit(db, {
    denied: updateAccess(workspaceId, false),
    cancelled: cancelPendingOf(workspaceId),
    granted: updateAccess(workspaceId, true),
  });
  await announceLeads(workspaceId, 1, ago(4));
  const newest = (await deliveriesTo(fine.id)).at(-1);
  await setDeliveries(fine.id, { dueAt: ago(6) }, newest?.eventId);
  return workspaceId;
}

// In this order, because the first counts all deliveries.
describe("the ledger", { shuffle: false }, () => {
  let busy: string;
  let quiet: string;
  beforeAll(async () => {
    await db.delete(deliveries);
    await db.delete(events);
    busy = await busyWorkspace();
    const { id, workspaceId } = await owed(1, ago(2));
    quiet = workspaceId;
    await dispatchAt(ago(1), [id], answered(204));
    await announceLeads(quiet, 1, ago(2));
  });

  test("counts the deliveries of a workspace, or of all, by state", async () => {
    const settled = { delivered: 3, exhausted: 1, cancelled: 3, addsUp: true };
    const oldest = { oldestPendingSeconds: 240, oldestWebhookId: expect.stringMatching(/^whk_/) };
    const all = { ...settled, created: 9, pending: 2, overdue: 1, ...oldest };
    expect(await findLedger(db, busy, NOW)).toEqual(all);
    const total = { ...all, created: 11, pending: 3, delivered: 4 };
    expect(await findLedger(db, undefined, NOW)).toEqual(total);
    const few = {
      created: 2,
      pending: 1,
      delivered: 1,
      oldestPendingSeconds: 120,
      oldestWebhookId: expect.stringMatching(/^whk_/),
    };
    expect(await findLedger(db, quiet, NOW)).toEqual({ ...EMPTY_LEDGER, ...few });
    const both = [await findLedger(db, busy, NOW), await findLedger(db, quiet, NOW)];
    expect(sumLedgers(both)).toEqual(total);
    // One database that does not add up is enough.
    const lossy = { ...EMPTY_LEDGER, created: 1, addsUp: false };
    expect(sumLedgers([...both, lossy])).toEqual({ ...total, created: 12, addsUp: false });
  });

  test("counts as overdue what is pending and due for more than five minutes", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    const at = (now: number) => findLedger(db, workspaceId, now);
    expect(await at(NOW + 5 * MINUTE_MS)).toMatchObject({ overdue: 0 });
    expect(await at(NOW + 5 * MINUTE_MS + 1)).toMatchObject({ overdue: 1 });
    // A failed attempt delays it; its age stays.
    await failAt(id, [NOW + MINUTE_MS]);
    const waiting = { pending: 1, overdue: 0, oldestPendingSeconds: 360, oldestWebhookId: id };
    expect(await at(NOW + 6 * MINUTE_MS)).toMatchObject(waiting);
    await dispatchAt(NOW + 2 * MINUTE_MS, [id], answered(200));
    const settled = { ...EMPTY_LEDGER, created: 1, delivered: 1 };
    expect(await at(NOW + 60 * MINUTE_MS)).toEqual(settled);
  });
});

test("the backlog shows how much is pending and overdue, and how old the oldest is", async () => {
  await db.delete(deliveries);
  const late = await owed(2, ago(6));
  await announceLeads(late.workspaceId, 1, ago(1));
  const other = await owed(4, ago(2));
  const of = (workspaceId?: string) => findBacklog(db, workspaceId, NOW);
  const figures = { pending: 3, overdue: 2, oldestPendingSeconds: 360, oldestWebhookId: late.id };
  expect(await of(late.workspaceId)).toEqual(figures);
  const recent = { pending: 4, overdue: 0, oldestPendingSeconds: 120, oldestWebhookId: other.id };
  expect(await of(other.workspaceId)).toEqual(recent);
  expect(await of()).toEqual({ ...figures, pending: 7 });
  const [older, younger] = [await of(late.workspaceId), await of(other.workspaceId)];
  expect(sumBacklogs([younger, older, older])).toEqual({ ...figures, pending: 10, overdue: 4 });
  await setDeliveries(late.id, { state: "delivered", settledAt: NOW });
  const none = { pending: 0, overdue: 0, oldestPendingSeconds: null, oldestWebhookId: null };
  expect(await of(late.workspaceId)).toEqual(none);
  const ahead = await owed(1, NOW + MINUTE_MS);
  const newest = await of(ahead.workspaceId);
  expect(newest).toMatchObject({ oldestPendingSeconds: 0, oldestWebhookId: ahead.id });
  // Beside a database in which nothing is pending.
  for (const both of [
    [none, newest],
    [newest, none],
  ])
    expect(sumBacklogs(both)).toEqual(newest);
});

test("the backlog reads rows for what is pending, whatever is settled next to it", async () => {
  await db.delete(deliveries);
  const { id, workspaceId } = await owed(0, NOW);
  await storeEvents(workspaceId, id, 500, NOW, "delivered");
  await announceLeads(workspaceId, 10, ago(10));
  for (const within of [workspaceId, undefined]) {
    const { DB, rows } = meteredDatabase();
    const figures = { pending: 10, overdue: 10, oldestPendingSeconds: 600, oldestWebhookId: id };
    expect(await findBacklog(connect(DB), within, NOW)).toEqual(figures);
    expect(rows.read).toBeLessThan(100);
  }
  // A delivery that waits for its subscription is not overdue.
  await setSubscription(id, failingSince(NOW, 1, NOW));
  expect(await findBacklog(db, workspaceId, NOW)).toMatchObject({ pending: 10, overdue: 0 });
});
