import { exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { commit, inOrder } from "../../src/db/client.ts";
import { subscriptions } from "../../src/db/schema.ts";
import { cancelWorkspace } from "../../src/model/deliveries.ts";
import { deleteSubscription } from "../../src/model/subscriptions.ts";
import { updateAccess } from "../../src/model/workspaces.ts";
import {
  answered,
  db,
  deliveriesTo,
  deliveryTo,
  HOUR_MS,
  heldRun,
  MINUTE_MS,
  owed,
  runAt,
  statesOf,
  subscriber,
} from "../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

describe("a subscription that ends", () => {
  const ends: [how: string, end: (workspaceId: string, id: string) => Promise<unknown>][] = [
    ["is deleted", (workspaceId, id) => commit(db, deleteSubscription(workspaceId, id, NOW))],
    [
      "is disabled",
      (_, id) => db.update(subscriptions).set({ disabledAt: NOW }).where(sql`id = ${id}`),
    ],
    [
      "loses its workspace's access",
      (workspaceId) =>
        commit(db, inOrder([updateAccess(workspaceId, false), cancelWorkspace(workspaceId, NOW)])),
    ],
  ];

  test.each(ends)("and %s before the claim gets nothing more: it is cancelled", async (_, end) => {
    const { id, workspaceId } = await owed(3, NOW);
    await end(workspaceId, id);
    const { posts, attempt } = subscriber();
    await runAt(NOW + 1000, [id], attempt);
    expect(posts).toEqual([]);
    expect(await statesOf(id)).toEqual({ cancelled: 3 });
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 3, cancelled: 3, addsUp: true });
  });

  test.each(ends)(
    "and %s between claim and post gets nothing after the attempt that was under way",
    async (_, end) => {
      const { id, workspaceId } = await owed(10, NOW);
      const { posts, attempt } = subscriber(async () => {
        if (posts.length === 1) await end(workspaceId, id);
        return answered(500);
      });
      const next = await runAt(NOW, [id], attempt);
      const underWay = posts.length;
      expect(underWay).toBeLessThanOrEqual(3);
      expect(next.filter(({ dueAt }) => dueAt !== null)).toEqual([]);
      expect(await statesOf(id)).toEqual({ cancelled: 10 });
      for (const { claim, settledAt } of await deliveriesTo(id))
        expect([claim, settledAt]).toEqual([null, NOW]);
      await runAt(NOW + HOUR_MS, [id], attempt);
      expect(posts).toHaveLength(underWay);
    },
  );

  test.each(ends)(
    "and %s while a post is under way has it recorded when it is acknowledged",
    async (_, end) => {
      const { id, workspaceId } = await owed(1, NOW);
      await runAt(NOW, [id], async () => {
        await end(workspaceId, id);
        return OK;
      });
      expect(await deliveryTo(id)).toMatchObject({ state: "delivered", lastStatus: 200 });
    },
  );

  test.each(ends)(
    "and %s under a run that crashes has the rest cancelled after the lease",
    async (_, end) => {
      const { id, workspaceId } = await owed(3, NOW);
      const crashed = await heldRun(NOW, id);
      await end(workspaceId, id);
      expect(await statesOf(id)).toEqual({ pending: 3 });
      const { posts, attempt } = subscriber();
      await runAt(NOW + MINUTE_MS, [id], attempt);
      expect(posts).toEqual([]);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
      await crashed.finish(OK);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
    },
  );
});
