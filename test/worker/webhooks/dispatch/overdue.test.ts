import { sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { commit, openDatabase } from "../../../../src/db/client.ts";
import { deliveries } from "../../../../src/db/schema.ts";
import { findOverdue, listDue } from "../../../../src/webhooks/dispatch/wake.ts";
import { findBacklog } from "../../../../src/webhooks/ledger.ts";
import {
  announceLeads,
  createWorkspace,
  db,
  MINUTE_MS,
  owed,
  setSubscription,
  subscribe,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

beforeEach(async () => {
  await db.delete(deliveries);
});

describe("the backlog", () => {
  test("reads rows for what is pending, whatever is settled next to it", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 5_000, NOW);
    await db.update(deliveries).set({ state: "delivered", settledAt: NOW });
    await announceLeads(workspaceId, 10, NOW - 10 * MINUTE_MS);
    for (const within of [workspaceId, undefined]) {
      const { DB, rows } = meteredDatabase();
      expect(await findBacklog(openDatabase(DB), within, NOW)).toEqual({
        pending: 10,
        overdue: 10,
        oldestPendingSeconds: 600,
      });
      expect(rows.read).toBeLessThan(100);
    }
    // A delivery that waits for its subscription is not overdue.
    await setSubscription(id, { nextAt: NOW });
    expect(await findBacklog(db, workspaceId, NOW)).toMatchObject({ pending: 10, overdue: 0 });
  });
});

test("a deleted subscription whose deliveries wait to be cancelled is not woken by new events", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  const due = () => commit(db, listDue(workspaceId, NOW));
  expect(await due()).toEqual([{ subscriptionId: id, lane: "fast" }]);
  await setSubscription(id, { deletedAt: NOW, cancelling: true });
  expect(await due()).toEqual([]);
});

describe("the search for overdue deliveries", () => {
  /** More subscriptions than one sweep wakes, each owed one event. */
  async function crowd(count: number): Promise<string[]> {
    const { id, workspaceId, drafts } = await owed(1, NOW);
    const ids = Array.from({ length: count }, (_, i) => `whk_${String(i).padStart(25, "0")}`);
    const list = JSON.stringify(ids);
    await db.run(sql`INSERT OR IGNORE INTO subscriptions (id, workspace_id, url, events, sealed_secret, created_at)
      SELECT value, ${workspaceId}, 'https://crowd.example/', '["lead.created"]', '', 0 FROM json_each(${list})`);
    await db.run(sql`INSERT INTO deliveries (subscription_id, event_id, workspace_id, state, due_at)
      SELECT value, ${drafts[0]?.id}, ${workspaceId}, 'pending', ${NOW} FROM json_each(${list})`);
    await db.delete(deliveries).where(sql`subscription_id = ${id}`);
    return ids;
  }

  test("continues where it stopped, and starts over at the end", async () => {
    const ids = await crowd(2_200);
    const later = NOW + 2 * MINUTE_MS;
    const found: string[] = [];
    let after = "";
    for (const [size, ends] of [
      [1_000, false],
      [1_000, false],
      [200, true],
    ] as const) {
      const part = await findOverdue(db, after, later);
      expect(part.wakes).toHaveLength(size);
      expect(part.after === "").toBe(ends);
      found.push(...part.wakes.map(({ subscriptionId }) => subscriptionId));
      after = part.after;
    }
    expect(found).toEqual(ids);
  });

  test("skips what is waiting and what is held", async () => {
    const waiting = await owed(1, NOW);
    const held = await owed(1, NOW);
    const slow = await owed(1, NOW);
    const later = NOW + 2 * MINUTE_MS;
    await setSubscription(waiting.id, { nextAt: later - 1, backoff: 1 });
    await setSubscription(held.id, { heldUntil: later + 1 });
    await setSubscription(slow.id, { slow: true });
    expect((await findOverdue(db, "", later)).wakes).toEqual([
      { subscriptionId: slow.id, lane: "slow" },
    ]);
    const { wakes } = await findOverdue(db, "", later + MINUTE_MS);
    expect(wakes.map(({ subscriptionId }) => subscriptionId).toSorted()).toEqual(
      [waiting.id, held.id, slow.id].toSorted(),
    );
  });
});
