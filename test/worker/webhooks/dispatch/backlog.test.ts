import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { findBacklog } from "../../../../src/webhooks/ledger.ts";
import { errorOf } from "../../../support/api.ts";
import {
  announceLeads,
  db,
  MINUTE_MS,
  owed,
  setDeliveries,
  setSubscription,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

describe("the backlog", () => {
  test("shows what is pending, how much of it is overdue, and how old the oldest is", async () => {
    const late = await owed(2, NOW - 6 * MINUTE_MS);
    await announceLeads(late.workspaceId, 1, NOW - MINUTE_MS);
    const other = await owed(4, NOW - 2 * MINUTE_MS);
    const of = (workspaceId?: string) => findBacklog(db, workspaceId, NOW);
    const figures = { pending: 3, overdue: 2, oldestPendingSeconds: 360 };
    expect(await of(late.workspaceId)).toEqual(figures);
    const recent = { pending: 4, overdue: 0, oldestPendingSeconds: 120 };
    expect(await of(other.workspaceId)).toEqual(recent);
    expect(await of()).toEqual({ ...figures, pending: 7 });
    await setDeliveries(late.id, { state: "delivered", settledAt: NOW });
    const none = { pending: 0, overdue: 0, oldestPendingSeconds: null };
    expect(await of(late.workspaceId)).toEqual(none);
  });

  test("has no negative age for an event of a clock that is ahead", async () => {
    const { workspaceId } = await owed(1, NOW + MINUTE_MS);
    expect(await findBacklog(db, workspaceId, NOW)).toMatchObject({ oldestPendingSeconds: 0 });
  });

  test("is what the Platform API returns, which rejects an unknown workspace", async () => {
    const { id, workspaceId } = await owed(1, Date.now() - 10 * MINUTE_MS);
    await setSubscription(id, { nextAt: Date.now() + 60 * MINUTE_MS });
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
