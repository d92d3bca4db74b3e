import { expect, test } from "vitest";
import type { DeliveryState } from "../../../src/contract/enumerations.ts";
import { DELIVERIES_COUNTED_MAX as MAX } from "../../../src/contract/limits.ts";
import { openDatabase } from "../../../src/db/client.ts";
import { DELIVERIES_LOOKED_THROUGH, listHistory } from "../../../src/history/history.ts";
import { listSubscriptionHealth } from "../../../src/history/subscription-health.ts";
import { toPage } from "../../../src/http/paging.ts";
import { createWorkspace, DAY_MS, subscribe } from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { storeEvents } from "../../support/stored-events.ts";

const TODAY = Date.UTC(2026, 10, 21);

/** A subscription, and what stores events of the day that starts then, with deliveries to it. */
async function filling() {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const fill = (startsAt: number, count: number, state: DeliveryState = "delivered") =>
    storeEvents(workspaceId, id, count, startsAt + 1_000, state);
  return { workspaceId, id, fill };
}

test("the health of a subscription counts pending deliveries up to a limit, and reads no more", async () => {
  const { workspaceId, fill } = await filling();
  await fill(TODAY, MAX - 1, "pending");
  const { DB, rows } = meteredDatabase();
  const read = async () =>
    (await listSubscriptionHealth(openDatabase(DB), workspaceId))[0]?.pending;
  expect(await read()).toBe(MAX - 1);
  await fill(TODAY - DAY_MS, 10_000, "pending");
  rows.read = 0;
  expect(await read()).toBe(MAX);
  expect(rows.read).toBeLessThan(MAX + 300);
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
