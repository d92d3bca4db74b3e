import { expect, test } from "vitest";
import type { DeliveryState } from "../../../src/contract/enumerations.ts";
import { PENDING_COUNTED_MAX } from "../../../src/contract/limits.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { openDatabase } from "../../../src/db/client.ts";
import { toPage } from "../../../src/http/paging.ts";
import { countDays, PORTAL_DAY_MAX } from "../../../src/webhooks/days.ts";
import { DELIVERIES_LOOKED_THROUGH, listHistory } from "../../../src/webhooks/history.ts";
import { listSubscriptionHealth } from "../../../src/webhooks/subscription-health.ts";
import { createWorkspace, DAY_MS, setDeliveries, subscribe } from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { storeEvents } from "../../support/stored-events.ts";

const TODAY = Date.UTC(2026, 10, 21);
const NOW = TODAY + 15 * 3_600_000;

/** A subscription, and what stores events of the day that starts then, with deliveries to it. */
async function filling() {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const fill = (startsAt: number, count: number, state: DeliveryState = "delivered") =>
    storeEvents(workspaceId, id, count, startsAt + 1_000, state);
  return { workspaceId, id, fill };
}

test("the counts of the last days are exact below a limit per day, say if there may be more, and read no more", async () => {
  const { id, fill } = await filling();
  const [again] = await fill(TODAY, 3);
  // Sending again lowers no count.
  const sentAgain = { state: "pending", deliveredEarlier: true, earlierAttempts: 2 } as const;
  await setDeliveries(id, sentAgain, again);
  await fill(TODAY - DAY_MS, PORTAL_DAY_MAX - 1);
  await fill(TODAY - 2 * DAY_MS, PORTAL_DAY_MAX + 5_000, "exhausted");
  await fill(TODAY - 3 * DAY_MS, PORTAL_DAY_MAX + 5_000, "test");
  await fill(TODAY - 8 * DAY_MS, 20_000);
  const { DB, rows } = meteredDatabase();
  const days = await countDays(openDatabase(DB), id, NOW);
  const none = { pending: 0, delivered: 0, exhausted: 0, cancelled: 0, attempts: 0 };
  const counts = [
    { ...none, truncated: false },
    { ...none, truncated: false },
    { ...none, truncated: false },
    { ...none, truncated: true },
    { exhausted: PORTAL_DAY_MAX, delivered: 0, truncated: true },
    { ...none, delivered: PORTAL_DAY_MAX - 1, attempts: PORTAL_DAY_MAX - 1, truncated: false },
    { ...none, delivered: 3, attempts: 5, truncated: false },
  ];
  const dateOf = (i: number) => isoTime(TODAY - (6 - i) * DAY_MS).slice(0, 10);
  expect(days).toMatchObject(counts.map((count, i) => ({ date: dateOf(i), ...count })));
  // SQLite reads each group once more when it returns it.
  expect(rows.read).toBeLessThan(2.2 * (3 + 3 * PORTAL_DAY_MAX));
});

test("the health of a subscription counts pending deliveries up to a limit, and reads no more", async () => {
  const { workspaceId, fill } = await filling();
  await fill(TODAY, PENDING_COUNTED_MAX - 1, "pending");
  const { DB, rows } = meteredDatabase();
  const read = async () =>
    (await listSubscriptionHealth(openDatabase(DB), workspaceId))[0]?.pending;
  expect(await read()).toBe(PENDING_COUNTED_MAX - 1);
  await fill(TODAY - DAY_MS, 10_000, "pending");
  rows.read = 0;
  expect(await read()).toBe(PENDING_COUNTED_MAX);
  expect(rows.read).toBeLessThan(PENDING_COUNTED_MAX + 300);
});

test("a filtered list of deliveries examines a limited number per page", async () => {
  const { id, fill } = await filling();
  await fill(TODAY - DAY_MS, 3, "exhausted");
  await fill(TODAY, 2.5 * DELIVERIES_LOOKED_THROUGH);
  const { DB, rows } = meteredDatabase();
  const database = openDatabase(DB);
  const lengths: number[] = [];
  let after = null;
  do {
    rows.read = 0;
    const found = await listHistory(database, id, { state: "exhausted" }, { limit: 2, after });
    const page = toPage("deliveries", found);
    expect(rows.read).toBeLessThan(5 * DELIVERIES_LOOKED_THROUGH);
    lengths.push(page.data.length);
    expect(page.has_more).toBe(page.next_cursor !== null);
    after = page.next_cursor && { at: 0, id: JSON.parse(atob(page.next_cursor))[3] };
  } while (after);
  expect(lengths).toEqual([0, 0, 2, 1]);
  rows.read = 0;
  await listHistory(database, id, {}, { limit: 25, after: null });
  expect(rows.read).toBeLessThan(60);
});
