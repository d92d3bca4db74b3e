import { env, exports } from "cloudflare:workers";
import { eq, sql } from "drizzle-orm";
import { beforeEach, expect, test, vi } from "vitest";
import { commit, openDatabase } from "../../../../src/db/client.ts";
import { deliveries, events, workspaces as workspacesTable } from "../../../../src/db/schema.ts";
import { sweep } from "../../../../src/sweep.ts";
import { exhaustEvents } from "../../../../src/webhooks/endings.ts";
import { WHOLE_BYTES } from "../../../../src/webhooks/event-size.ts";
import { enableAgain } from "../../../../src/webhooks/redelivery/redelivery.ts";
import { deleteExpired } from "../../../../src/workspaces/lifecycle/retention.ts";
import {
  parseEventsMaxBytes,
  SIZE_SLACK_MS,
  TRIM_PENDING_MAX,
  trimEvents,
} from "../../../../src/workspaces/lifecycle/trimming.ts";
import { leadReport } from "../../../support/api.ts";
import {
  announceLeads,
  createWorkspace,
  DAY_MS,
  db,
  HOUR_MS,
  isolated,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscribeMany,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";
import { storeEvents } from "../../../support/stored-events.ts";

const NOW = Date.UTC(2026, 5, 5, 12);
const MB = 1_000_000;
const ALWAYS = () => true;
const TWO_KB = { note: "x".repeat(1_700) };

beforeEach(async () => {
  const tables = ["deliveries", "events", "sweep_positions"];
  await env.DB.batch(tables.map((table) => env.DB.prepare(`DELETE FROM ${table}`)));
  await env.DB.prepare("UPDATE workspaces SET sized_bytes = 0").run();
});

/** As long as those of one secret. */
const SIGNATURES = `t=1780000000,v1=${"0".repeat(64)} v1,${"A".repeat(44)}`;

/** Marks every pending delivery of the subscription as delivered. */
async function settle(subscriptionId: string, now: number): Promise<void> {
  await db
    .update(deliveries)
    .set({ state: "delivered", settledAt: now, signatures: SIGNATURES })
    .where(sql`subscription_id = ${subscriptionId} AND state = 'pending'`);
}

/** Holds the subscription for the next 20 seconds. */
const hold = (id: string) =>
  setSubscription(id, { leasedBy: "dispatch", leasedUntil: NOW + 20_000 });

/** The actual size of a workspace's events, that of their bodies, and what the sweep knows of it. */
async function sizeOf(workspaceId: string) {
  const [row] = await db.all<{ bytes: number; bodies: number; known: number }>(sql`
    SELECT sum(bytes) AS bytes, sum(body) AS bodies,
      (SELECT sized_bytes FROM workspaces WHERE id = ${workspaceId}) AS known
    FROM (SELECT ${WHOLE_BYTES} AS bytes, length(events.body) AS body
      FROM events WHERE events.workspace_id = ${workspaceId})`);
  if (!row) throw new Error("no row");
  return row;
}

test("the oldest settled events beyond the limit are deleted, but none that is pending or another workspace's", async () => {
  const big = await owed(40, NOW - 3 * HOUR_MS, { customFields: TWO_KB });
  const waiting = await subscribe(big.workspaceId, { events: ["run.completed"] });
  await setDeliveries(big.id, { subscriptionId: waiting.id });
  await db
    .update(events)
    .set({ owed: [waiting.id] })
    .where(eq(events.workspaceId, big.workspaceId));
  for (let i = 0; i < 3; i++) {
    await announceLeads(big.workspaceId, 1_000, NOW - 2 * HOUR_MS + i * 1_000, TWO_KB);
    await settle(big.id, NOW - HOUR_MS);
  }
  const other = await owed(100, NOW - 2 * HOUR_MS, { customFields: TWO_KB });
  await settle(other.id, NOW - HOUR_MS);
  const before = await sizeOf(big.workspaceId);
  expect(before.bodies).toBeGreaterThan(3_000 * 2_000);

  // The ledger is also read between the chunks.
  const verdicts: boolean[] = [];
  const addsUp = async () => verdicts.push((await exports.Platform.ledger({})).addsUp);
  const { DB } = observedDatabase({
    before: async (_, texts) => {
      if (texts.some((text) => /DELETE FROM "?events/i.test(text))) await addsUp();
    },
  });
  await sweep(isolated({ DB, WORKSPACE_EVENTS_MAX_MB: 1 }).env, NOW);
  expect(verdicts.length).toBeGreaterThanOrEqual(3);
  await addsUp();
  expect(new Set(verdicts)).toEqual(new Set([true]));

  const after = await sizeOf(big.workspaceId);
  expect(after.bytes).toBeLessThanOrEqual(MB);
  // And no more than necessary.
  expect(after.bytes).toBeGreaterThan(MB - 10_000);
  expect(after.known).toBe(after.bytes);
  expect(await statesOf(waiting.id)).toEqual({ pending: 40 });
  expect(await statesOf(other.id)).toEqual({ delivered: 100 });
  // The newest ones are left.
  const rows = await db.select().from(events).where(eq(events.workspaceId, big.workspaceId));
  const times = rows.filter(({ owed }) => !owed.includes(waiting.id)).map((row) => row.createdAt);
  expect(new Set(times)).toEqual(new Set([NOW - 2 * HOUR_MS + 2_000]));
});

test("a workspace's size is known to the byte, whatever happens to its events", async () => {
  const { id, workspaceId } = await owed(1_200, NOW - 2 * DAY_MS);
  const late = await subscribe(workspaceId);
  const trim = (now: number, maxBytes = 100 * MB) => trimEvents(db, maxBytes, now, ALWAYS);
  // An event is measured once no older one can be added.
  await trim(NOW - 2 * DAY_MS + SIZE_SLACK_MS, 1);
  expect(await sizeOf(workspaceId)).toMatchObject({ known: 0 });
  await trim(NOW - 2 * DAY_MS + SIZE_SLACK_MS + 1);
  expect(await sizeOf(workspaceId)).toMatchObject({ known: (await sizeOf(workspaceId)).bytes });
  // Owed to one more subscription, some before they are measured and some after.
  await announceLeads(workspaceId, 10, NOW - DAY_MS, TWO_KB);
  await enableAgain(db, late.id, NOW - 3 * DAY_MS, NOW - HOUR_MS);
  await enableAgain(db, late.id, NOW - 3 * DAY_MS, NOW - HOUR_MS);
  await trim(NOW);
  const { known, bytes } = await sizeOf(workspaceId);
  expect(known).toBe(bytes);
  await settle(id, NOW);
  await settle(late.id, NOW);
  await trim(NOW, bytes / 2);
  const trimmed = await sizeOf(workspaceId);
  expect(trimmed.known).toBe(trimmed.bytes);
  expect(trimmed.bytes).toBeLessThanOrEqual(bytes / 2);
  const retention = { deliveredMs: HOUR_MS, undeliveredMs: HOUR_MS };
  for (const later of [1, 2]) await deleteExpired(db, retention, NOW + later * 2 * HOUR_MS, ALWAYS);
  expect(await sizeOf(workspaceId)).toMatchObject({ bytes: null, known: 0 });
});

test("what is erased no longer counts", async () => {
  const { workspaceId } = await owed(1, NOW);
  const leads = [leadReport("1"), leadReport("2")];
  const { ids } = await exports.Platform.recordLeads({ workspaceId, leads });
  await trimEvents(db, 100 * MB, Date.now() + DAY_MS, ALWAYS);
  await exports.Platform.eraseLeads({ workspaceId, ids: ids.slice(1) });
  // What is erased before it is measured never did.
  const late = await exports.Platform.recordLeads({ workspaceId, leads: [leadReport("3")] });
  await exports.Platform.eraseLeads({ workspaceId, ids: late.ids });
  const { known, bytes } = await sizeOf(workspaceId);
  expect(bytes).toBeGreaterThan(0);
  expect(known).toBe(bytes);
});

test("the estimated size of an event is within a tenth of the file's growth", async () => {
  const size = async () => (await env.DB.prepare("SELECT 1").all()).meta.size_after;
  for (const [subscriptions, customFields] of [
    [1, {}],
    [1, TWO_KB],
    // Stored apart, with one overflow page and two.
    [1, { note: "x".repeat(4_200) }],
    [1, { note: "x".repeat(8_600) }],
    [10, { note: "x".repeat(300) }],
  ] as const) {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, subscriptions);
    const before = await size();
    for (let i = 0; i < 1_000; i += 200)
      await announceLeads(workspaceId, 200, NOW + i, customFields);
    for (const id of ids) await settle(id, NOW);
    const grown = (await size()) - before;
    expect(Math.abs((await sizeOf(workspaceId)).bytes / grown - 1)).toBeLessThan(0.1);
  }
});

test("a sweep reads rows in proportion to the events since the last one", async () => {
  const { workspaceId } = await owed(2_000, NOW - 3 * HOUR_MS);
  await trimEvents(db, 100 * MB, NOW, ALWAYS);
  const rowsOfTrim = async () => {
    const { DB, rows } = meteredDatabase();
    await trimEvents(openDatabase(DB), 100 * MB, NOW, ALWAYS);
    return rows.read;
  };
  const idle = await rowsOfTrim();
  const workspaces = await db.$count(workspacesTable);
  expect(idle).toBeLessThanOrEqual(2 * workspaces + 10);
  await announceLeads(workspaceId, 100, NOW - HOUR_MS);
  const busy = await rowsOfTrim();
  expect(busy - idle).toBeGreaterThanOrEqual(100);
  expect(busy - idle).toBeLessThanOrEqual(4 * 100 + 20);
  expect(await rowsOfTrim()).toBe(idle);
});

test("settled events behind many pending ones are found, a limited distance per sweep", async () => {
  const wall = TRIM_PENDING_MAX + 2_000;
  const { id, workspaceId } = await owed(0, NOW);
  await storeEvents(workspaceId, id, wall, NOW - 3 * HOUR_MS, "pending");
  await storeEvents(workspaceId, id, 50, NOW - 2 * HOUR_MS, "cancelled");
  // Otherwise it would be given up.
  await hold(id);
  const trim = () => trimEvents(db, 1, NOW, ALWAYS);
  expect(await trim()).toMatchObject({ deleted: 0 });
  expect(await trim()).toMatchObject({ deleted: 50 });
  const { bytes } = await sizeOf(workspaceId);
  expect(await trim()).toEqual({ deleted: 0, overBound: [{ workspaceId, bytes }] });
  const log = vi.spyOn(console, "log");
  await sweep(isolated({ WORKSPACE_EVENTS_MAX_MB: 0.001 }).env, NOW);
  const lines = log.mock.calls.map(([line]) => JSON.parse(String(line)));
  expect(lines).toContainEqual({ event: "events_over_bound", workspaceId, bytes });
  expect(await statesOf(id)).toEqual({ pending: wall });
  // Once cancelled, they are deleted, oldest first.
  await settle(id, NOW);
  expect(await trim()).toEqual({ deleted: wall, overBound: [] });
  expect(await sizeOf(workspaceId)).toMatchObject({ bytes: null, known: 0 });
});

test("a trim that is stopped continues later", async () => {
  for (let i = 0; i < 2; i++)
    await settle((await owed(1_500, NOW - 3 * HOUR_MS)).id, NOW - HOUR_MS);
  let deleted = 0;
  for (let calls = 0; deleted < 3_000 && calls < 100; calls++) {
    let steps = 4;
    deleted += (await trimEvents(db, 1, NOW, () => steps-- > 0)).deleted;
  }
  expect(deleted).toBe(3_000);
});

test("a limit that is not a number of megabytes is rejected", () => {
  expect(parseEventsMaxBytes({ WORKSPACE_EVENTS_MAX_MB: 250 } as Env)).toBe(250 * MB);
  for (const value of ["", "much", -1])
    expect(() => parseEventsMaxBytes({ WORKSPACE_EVENTS_MAX_MB: value } as unknown as Env)).toThrow(
      "WORKSPACE_EVENTS_MAX_MB is not a number of megabytes",
    );
});

test("the oldest pending deliveries are given up beyond twice the limit, except those of leased subscriptions", async () => {
  const { id, workspaceId } = await owed(1_000, NOW - 3 * HOUR_MS, { customFields: TWO_KB });
  await announceLeads(workspaceId, 1_000, NOW - 2 * HOUR_MS, TWO_KB);
  await hold(id);
  await trimEvents(db, MB, NOW, ALWAYS);
  expect(await statesOf(id)).toEqual({ pending: 2_000 });
  const later = NOW + 20_000;
  for (let i = 0; i < 3; i++) {
    await trimEvents(db, MB, later, ALWAYS);
    expect(await exports.Platform.ledger({ workspaceId })).toMatchObject({ addsUp: true });
  }
  const { bytes } = await sizeOf(workspaceId);
  expect(bytes).toBeLessThanOrEqual(2 * MB);
  expect(bytes).toBeGreaterThan(1.9 * MB);
  const { pending = 0, ...others } = await statesOf(id);
  expect([pending > 100, others]).toEqual([true, {}]);
});

test("exhausting the pending deliveries of some events reads no others", async () => {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const drafts = await announceLeads(workspaceId, 1_000, NOW);
  const { DB, rows } = meteredDatabase();
  const eventIds = drafts.slice(0, 10).map((draft) => draft.id);
  await commit(openDatabase(DB), exhaustEvents(workspaceId, eventIds, NOW));
  expect(await statesOf(id)).toEqual({ exhausted: 10, pending: 990 });
  expect(rows.read).toBeLessThan(50 * eventIds.length);
});
