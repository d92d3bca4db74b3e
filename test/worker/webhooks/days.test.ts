import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { eventIdAt } from "../../../src/contract/ids.ts";
import { PENDING_COUNTED_MAX } from "../../../src/contract/limits.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { openDatabase } from "../../../src/db/client.ts";
import { toPage } from "../../../src/http/paging.ts";
import { countDays, PORTAL_DAY_MAX } from "../../../src/webhooks/days.ts";
import { listHealth } from "../../../src/webhooks/health.ts";
import { DELIVERIES_LOOKED_THROUGH, listDeliveries } from "../../../src/webhooks/history.ts";
import { createWorkspace, DAY_MS, subscribe } from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const TODAY = Date.UTC(2026, 10, 21);
const NOW = TODAY + 15 * 3_600_000;

/** Writes deliveries of events spread over the day that starts at `startsAt`. */
async function fill(webhookId: string, startsAt: number, count: number, state = "delivered") {
  // Ids of the same time differ only in their last digits: these count up.
  const id = `'${eventIdAt(startsAt + 1_000).slice(0, -6)}' || substr('000000' || n, -6)`;
  const workspaceId = "wks_filled";
  await env.DB.batch([
    env.DB.prepare(`INSERT INTO events (workspace_id, id, type, body, owed, created_at)
      WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
      SELECT ?, ${id}, 'lead.created', '{}', '[]', ? FROM numbers WHERE true ON CONFLICT DO NOTHING`).bind(
      count,
      workspaceId,
      startsAt,
    ),
    env.DB.prepare(`INSERT INTO deliveries (subscription_id, event_id, workspace_id, state, attempts, due_at)
      WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
      SELECT ?, ${id}, ?, ?, 1, 0 FROM numbers`).bind(count, webhookId, workspaceId, state),
  ]);
}

const newWebhook = async () => (await subscribe(await createWorkspace())).id;

describe("the counts of the last days", () => {
  let busy = "";
  beforeAll(async () => {
    busy = await newWebhook();
    await fill(busy, TODAY, 3);
    await fill(busy, TODAY - DAY_MS, PORTAL_DAY_MAX);
    await fill(busy, TODAY - 2 * DAY_MS, PORTAL_DAY_MAX + 5_000, "exhausted");
    await fill(busy, TODAY - 3 * DAY_MS, PORTAL_DAY_MAX + 5_000, "test");
    await fill(busy, TODAY - 8 * DAY_MS, 20_000);
  });

  test("are exact up to a limit per day, and say if there are more", async () => {
    const days = await countDays(openDatabase(meteredDatabase().DB), busy, NOW);
    const dates = Array.from({ length: 7 }, (_, i) =>
      isoTime(TODAY - (6 - i) * DAY_MS).slice(0, 10),
    );
    expect(days.map(({ date }) => date)).toEqual(dates);
    const none = { pending: 0, delivered: 0, exhausted: 0, cancelled: 0, attempts: 0 };
    expect(days.slice(2)).toMatchObject([
      { ...none, truncated: false },
      { ...none, truncated: true },
      { exhausted: PORTAL_DAY_MAX + 1, delivered: 0, truncated: true },
      { ...none, delivered: PORTAL_DAY_MAX, attempts: PORTAL_DAY_MAX, truncated: false },
      { ...none, delivered: 3, attempts: 3, truncated: false },
    ]);
  });

  test("read the rows they count, whatever else is stored for the subscription", async () => {
    const { DB, rows } = meteredDatabase();
    const database = openDatabase(DB);
    await countDays(database, busy, NOW);
    // SQLite reads each group once more when it returns it.
    const counts = 3 + PORTAL_DAY_MAX + 2 * (PORTAL_DAY_MAX + 1);
    expect(rows.read).toBeGreaterThanOrEqual(counts);
    expect(rows.read).toBeLessThan(2.2 * counts);
    rows.read = 0;
    await countDays(database, await newWebhook(), NOW);
    expect(rows.read).toBeLessThanOrEqual(21);
  });
});

test("the health of a subscription counts pending deliveries up to a limit, and reads no more", async () => {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  await fill(id, TODAY, PENDING_COUNTED_MAX - 1, "pending");
  const { DB, rows } = meteredDatabase();
  const read = async () => (await listHealth(openDatabase(DB), workspaceId))[0]?.pending;
  expect(await read()).toBe(PENDING_COUNTED_MAX - 1);
  await fill(id, TODAY - DAY_MS, 10_000, "pending");
  rows.read = 0;
  expect(await read()).toBe(PENDING_COUNTED_MAX);
  expect(rows.read).toBeLessThan(PENDING_COUNTED_MAX + 300);
});

test("a filtered list of deliveries examines a limited number per page", async () => {
  const id = await newWebhook();
  await fill(id, TODAY - DAY_MS, 3, "exhausted");
  await fill(id, TODAY, 2.5 * DELIVERIES_LOOKED_THROUGH);
  const { DB, rows } = meteredDatabase();
  const database = openDatabase(DB);
  const lengths: number[] = [];
  let after = null;
  do {
    rows.read = 0;
    const found = await listDeliveries(database, id, { state: "exhausted" }, { limit: 2, after });
    const page = toPage("deliveries", found);
    expect(rows.read).toBeLessThan(5 * DELIVERIES_LOOKED_THROUGH);
    lengths.push(page.data.length);
    expect(page.has_more).toBe(page.next_cursor !== null);
    after = page.next_cursor && { at: 0, id: JSON.parse(atob(page.next_cursor))[3] };
  } while (after);
  expect(lengths).toEqual([0, 0, 2, 1]);
  rows.read = 0;
  await listDeliveries(database, id, {}, { limit: 25, after: null });
  expect(rows.read).toBeLessThan(60);
});
