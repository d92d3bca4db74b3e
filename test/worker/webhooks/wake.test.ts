import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { commit } from "../../../src/db/client.ts";
import type { Lane } from "../../../src/webhooks/dispatch/policy.ts";
import { listDue, type Wake, wake } from "../../../src/webhooks/wake.ts";
import {
  db,
  isolated,
  owed,
  REFUSING_QUEUE,
  receivedBy,
  setSubscription,
} from "../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

/** Wakes in a lane, for subscriptions named `fast-0`, `fast-1`, … */
function wakes(lane: Lane, count: number): Wake[] {
  return Array.from({ length: count }, (_, i) => ({ subscriptionId: `${lane}-${i}`, lane }));
}

describe("the consumer is woken", () => {
  test("once per subscription, in its lane, which the message names, whatever the queue is called", async () => {
    const deployment = isolated();
    const mixed = [...wakes("fast", 2), ...wakes("fast", 1), ...wakes("slow", 3)];
    expect(await wake(deployment.env, "DB", mixed)).toBe(true);
    const sent = (wakes: Wake[]) => wakes.map((wake) => ({ ...wake, delaySeconds: 0 }));
    expect(deployment.fast).toEqual(sent(wakes("fast", 2)));
    expect(deployment.slow).toEqual(sent(wakes("slow", 3)));
  });

  test("in the database that its message names if it is not the first, after the delay, of 24 hours at the most", async () => {
    const { env: bindings, slow } = isolated();
    for (const delaySeconds of [30, 86_400, 172_800])
      await wake(bindings, "DB_2", wakes("slow", 1), delaySeconds);
    const named = { subscriptionId: "slow-0", lane: "slow", database: "DB_2" };
    expect(slow).toEqual([30, 86_400, 86_400].map((delaySeconds) => ({ ...named, delaySeconds })));
  });

  test("in batches of at most 100, as Queues requires", async () => {
    const batches: number[] = [];
    const sendBatch = async (messages: unknown[]) => void batches.push(messages.length);
    const DELIVERIES = { sendBatch } as unknown as Queue;
    await wake(isolated({ DELIVERIES }).env, "DB", wakes("fast", 201));
    expect(batches).toEqual([100, 100, 1]);
  });

  test("in the lane that works if the other refuses; and the caller is told", async () => {
    const mixed = [...wakes("fast", 1), ...wakes("slow", 1)];
    const deployment = isolated({ DELIVERIES: REFUSING_QUEUE });
    expect(await wake(deployment.env, "DB", mixed)).toBe(false);
    expect(deployment.slow).toHaveLength(1);
    const other = isolated({ REDELIVERIES: REFUSING_QUEUE });
    expect(await wake(other.env, "DB", mixed)).toBe(false);
    expect(other.fast).toHaveLength(1);
  });

  test.each(["fast", "slow"] as const)("through the queues of the deployment: %s", async (lane) => {
    const { id, url, drafts } = await owed(1, Date.now());
    await setSubscription(id, { slow: lane === "slow" });
    expect(await wake(env, "DB", [{ subscriptionId: id, lane }])).toBe(true);
    const posts = expect.poll(() => receivedBy({ url }), { timeout: 5_000 });
    await posts.toMatchObject([{ body: drafts[0]?.body }]);
  });
});

test("a deleted subscription whose deliveries wait to be cancelled is not woken by new events", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  const due = () => commit(db, listDue(workspaceId, NOW));
  expect(await due()).toEqual([{ subscriptionId: id, lane: "fast" }]);
  await setSubscription(id, { deletedAt: NOW, cancelling: true });
  expect(await due()).toEqual([]);
});
