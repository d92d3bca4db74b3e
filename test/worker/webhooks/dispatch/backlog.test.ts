import { env, exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { deliveries } from "../../../../src/db/schema.ts";
import { findBacklog } from "../../../../src/webhooks/ledger.ts";
import { errorOf } from "../../../support/api.ts";
import { announceLeads, db, MINUTE_MS, owed } from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

/** Marks all pending deliveries of the subscription as delivered. */
async function settle(subscriptionId: string): Promise<void> {
  await db
    .update(deliveries)
    .set({ state: "delivered", settledAt: NOW })
    .where(sql`subscription_id = ${subscriptionId}`);
}

describe("the backlog", () => {
  test("shows what is pending, how much of it is overdue, and how old the oldest is", async () => {
    const late = await owed(2, NOW - 6 * MINUTE_MS);
    await announceLeads(late.workspaceId, 1, NOW - MINUTE_MS);
    const other = await owed(4, NOW - 2 * MINUTE_MS);
    const of = (workspaceId?: string) => findBacklog(db, workspaceId, NOW);
    const figures = { pending: 3, overdue: 2, oldestPendingSeconds: 360 };
    expect(await of(late.workspaceId)).toEqual(figures);
    expect(await of(other.workspaceId)).toEqual({
      pending: 4,
      overdue: 0,
      oldestPendingSeconds: 120,
    });
    expect(await of()).toEqual({ ...figures, pending: 7 });
    await settle(late.id);
    expect(await of(late.workspaceId)).toEqual({
      pending: 0,
      overdue: 0,
      oldestPendingSeconds: null,
    });
  });

  test("has no negative age for an event of a clock that is ahead", async () => {
    const { workspaceId } = await owed(1, NOW + MINUTE_MS);
    expect(await findBacklog(db, workspaceId, NOW)).toMatchObject({ oldestPendingSeconds: 0 });
  });

  test("is what the Platform API returns, which rejects an unknown workspace", async () => {
    const { workspaceId } = await owed(1, Date.now() - 10 * MINUTE_MS);
    await env.DB.prepare("UPDATE subscriptions SET next_at = ? WHERE workspace_id = ?")
      .bind(Date.now() + 60 * MINUTE_MS, workspaceId)
      .run();
    expect(await exports.Platform.backlog({ workspaceId })).toEqual({
      pending: 1,
      overdue: 0,
      oldestPendingSeconds: expect.closeTo(600, -1),
    });
    expect(await exports.Platform.backlog({})).toMatchObject({ pending: expect.any(Number) });
    const unknown = exports.Platform.backlog({ workspaceId: "wks_unknown" });
    expect(await errorOf(unknown)).toContain("workspaceId");
  });
});
