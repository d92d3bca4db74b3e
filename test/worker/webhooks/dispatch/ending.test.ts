import { exports } from "cloudflare:workers";
import { eq } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { qb } from "../../../../src/db/builder.ts";
import { commit, inOrder, write } from "../../../../src/db/client.ts";
import { subscriptions } from "../../../../src/db/schema.ts";
import { CANCEL_PENDING } from "../../../../src/webhooks/endings.ts";
import { cancelPendingOf, deleteSubscription } from "../../../../src/webhooks/subscriptions.ts";
import { updateAccess } from "../../../../src/workspaces/workspaces.ts";
import {
  answered,
  db,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  HOUR_MS,
  heldDispatch,
  owed,
  statesOf,
  subscriber,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
/** The duration of a hold. */
const LEASE_MS = 20_000;

describe("a subscription that", () => {
  const ends: [how: string, end: (workspaceId: string, id: string) => Promise<unknown>][] = [
    ["is deleted", (workspaceId, id) => commit(db, deleteSubscription(workspaceId, id, NOW))],
    [
      "is disabled",
      (_, id) =>
        commit(
          db,
          write(
            qb
              .update(subscriptions)
              .set({ disabledAt: NOW, ...CANCEL_PENDING })
              .where(eq(subscriptions.id, id)),
          ),
        ),
    ],
    [
      "loses its workspace's access",
      (workspaceId) =>
        commit(db, inOrder([updateAccess(workspaceId, false), cancelPendingOf(workspaceId, NOW)])),
    ],
  ];

  test.each(ends)(
    "%s before the claim gets nothing more: its deliveries are cancelled",
    async (_, end) => {
      const { id, workspaceId } = await owed(3, NOW);
      await end(workspaceId, id);
      const { posts, attempt } = subscriber();
      await dispatchAt(NOW + 1000, [id], attempt);
      expect(posts).toEqual([]);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
      const ledger = await exports.Platform.ledger({ workspaceId });
      expect(ledger).toMatchObject({ created: 3, cancelled: 3, addsUp: true });
    },
  );

  test.each(ends)(
    "%s between claim and post gets nothing after the attempt in progress",
    async (_, end) => {
      const { id, workspaceId } = await owed(10, NOW);
      const { posts, attempt } = subscriber(async () => {
        if (posts.length === 1) await end(workspaceId, id);
        return answered(500);
      });
      await dispatchAt(NOW, [id], attempt);
      const underWay = posts.length;
      expect(underWay).toBe(1);
      expect(await statesOf(id)).toEqual({ cancelled: 10 });
      for (const { settledAt } of await deliveriesTo(id)) expect(settledAt).toBe(NOW);
      await dispatchAt(NOW + HOUR_MS, [id], attempt);
      expect(posts).toHaveLength(underWay);
    },
  );

  test.each(ends)("%s during a post has it recorded as acknowledged", async (_, end) => {
    const { id, workspaceId } = await owed(1, NOW);
    await dispatchAt(NOW, [id], async () => {
      await end(workspaceId, id);
      return OK;
    });
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", lastStatus: 200 });
  });

  test.each(ends)(
    "%s during a dispatch that crashes has the rest cancelled after the hold",
    async (_, end) => {
      const { id, workspaceId } = await owed(3, NOW);
      const crashed = await heldDispatch(NOW, id);
      await end(workspaceId, id);
      expect(await statesOf(id)).toEqual({ pending: 3 });
      const { posts, attempt } = subscriber();
      await dispatchAt(NOW + LEASE_MS, [id], attempt);
      expect(posts).toEqual([]);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
      await crashed.finish(OK);
      expect(await statesOf(id)).toEqual({ cancelled: 3 });
    },
  );
});
