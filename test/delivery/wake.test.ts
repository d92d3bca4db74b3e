import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { type WakeMessage, wake } from "../../src/delivery/wake.ts";
import {
  announceLeads,
  createWorkspace,
  isolated,
  REFUSING_QUEUE,
  receivedBy,
  subscribe,
} from "../support/deliveries.ts";

/** Wakes for subscriptions that are called `name-0`, `name-1`... */
function wakes(name: string, count: number, failing: boolean) {
  return Array.from({ length: count }, (_, i) => ({ subscriptionId: `${name}-${i}`, failing }));
}

describe("the consumer is woken", () => {
  test("for healthy subscriptions in one lane, and for failing ones in the other", async () => {
    const deployment = isolated();
    const mixed = [...wakes("healthy", 2, false), ...wakes("failing", 3, true)];
    expect(await wake(deployment.env, mixed)).toBe(true);
    const ids = (sent: WakeMessage[]) => sent.map(({ subscriptionId }) => subscriptionId);
    expect(ids(deployment.healthy)).toEqual(["healthy-0", "healthy-1"]);
    expect(ids(deployment.failing)).toEqual(["failing-0", "failing-1", "failing-2"]);
  });

  test("once for each subscription, and with nothing but its id", async () => {
    const deployment = isolated();
    await wake(deployment.env, [...wakes("healthy", 1, false), ...wakes("healthy", 1, false)]);
    expect(deployment.healthy).toEqual([{ subscriptionId: "healthy-0", delaySeconds: 0 }]);
    expect(deployment.failing).toEqual([]);
  });

  test("after the delay, which a queue holds for 24 hours at the most", async () => {
    for (const [delaySeconds, expected] of [
      [30, 30],
      [86_400, 86_400],
      [172_800, 86_400],
    ] as const) {
      const deployment = isolated();
      await wake(deployment.env, wakes("failing", 1, true), delaySeconds);
      expect(deployment.failing).toEqual([{ subscriptionId: "failing-0", delaySeconds: expected }]);
    }
  });

  test("by batches of 100 at the most, as the platform takes them", async () => {
    const batches: number[] = [];
    const DELIVERIES = {
      sendBatch: async (messages: unknown[]) => void batches.push(messages.length),
    } as unknown as Queue;
    await wake(isolated({ DELIVERIES }).env, wakes("healthy", 201, false));
    expect(batches).toEqual([100, 100, 1]);
  });

  test("in the lane that works, when the other refuses; and the caller hears of it", async () => {
    const mixed = [...wakes("healthy", 1, false), ...wakes("failing", 1, true)];
    const deployment = isolated({ DELIVERIES: REFUSING_QUEUE });
    expect(await wake(deployment.env, mixed)).toBe(false);
    expect(deployment.failing).toHaveLength(1);
    const other = isolated({ REDELIVERIES: REFUSING_QUEUE });
    expect(await wake(other.env, mixed)).toBe(false);
    expect(other.healthy).toHaveLength(1);
  });

  test.each([false, true])("by the queues of the deployment (failing: %s)", async (failing) => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    const [draft] = await announceLeads(workspaceId, 1, Date.now());
    expect(await wake(env, [{ subscriptionId: id, failing }])).toBe(true);
    await expect.poll(() => receivedBy({ url }), { timeout: 5_000 }).toHaveLength(1);
    expect((await receivedBy({ url }))[0]?.body).toBe(draft?.body);
  });
});
