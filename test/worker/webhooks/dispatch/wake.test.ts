import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { randomId } from "../../../../src/contract/ids.ts";
import type { Lane } from "../../../../src/webhooks/dispatch/policy.ts";
import { isWake, type Wake, wake } from "../../../../src/webhooks/dispatch/wake.ts";
import {
  announceLeads,
  createWorkspace,
  isolated,
  REFUSING_QUEUE,
  receivedBy,
  setSubscription,
  subscribe,
} from "../../../support/deliveries.ts";

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

  test("in the database that knows the subscription, which its message names if it is not the first", async () => {
    const deployment = isolated();
    await wake(deployment.env, "DB_2", wakes("slow", 1));
    expect(deployment.slow).toEqual([
      { subscriptionId: "slow-0", lane: "slow", database: "DB_2", delaySeconds: 0 },
    ]);
  });

  test("after the delay, which a queue holds for 24 hours at the most", async () => {
    const deployment = isolated();
    for (const delaySeconds of [30, 86_400, 172_800])
      await wake(deployment.env, "DB", wakes("slow", 1), delaySeconds);
    const delays = deployment.slow.map(({ delaySeconds }) => delaySeconds);
    expect(delays).toEqual([30, 86_400, 86_400]);
  });

  test("in batches of at most 100, as Queues requires", async () => {
    const batches: number[] = [];
    const DELIVERIES = {
      sendBatch: async (messages: unknown[]) => void batches.push(messages.length),
    } as unknown as Queue;
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
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    await setSubscription(id, { slow: lane === "slow" });
    const [draft] = await announceLeads(workspaceId, 1, Date.now());
    expect(await wake(env, "DB", [{ subscriptionId: id, lane }])).toBe(true);
    await expect.poll(() => receivedBy({ url }), { timeout: 5_000 }).toHaveLength(1);
    expect((await receivedBy({ url }))[0]?.body).toBe(draft?.body);
  });
});

describe("a queue message", () => {
  const isWakeOf = (body: unknown) => isWake({ body } as Message, env);
  const wake = { subscriptionId: randomId("webhook"), lane: "fast" };

  test("is a wake if it names a subscription, a lane and, possibly, a database that is bound", () => {
    for (const lane of ["fast", "slow"]) expect(isWakeOf({ ...wake, lane })).toBe(true);
    expect(isWakeOf({ ...wake, database: "DB" })).toBe(true);
  });

  test.each([
    [null],
    [wake.subscriptionId],
    [[wake]],
    [{}],
    [{ lane: "fast" }],
    [{ ...wake, lane: "middle" }],
    [{ ...wake, subscriptionId: 1 }],
    [{ ...wake, subscriptionId: randomId("lead") }],
    [{ ...wake, subscriptionId: `${wake.subscriptionId}0` }],
    [{ ...wake, database: null }],
    [{ ...wake, database: "DB_9" }],
    [{ ...wake, database: "KEY_GATE" }],
    [{ ...wake, database: ["DB"] }],
    [{ ...wake, database: { toString: null, valueOf: null } }],
    [JSON.parse(`{ "__proto__": {}, ${JSON.stringify(wake).slice(1)}`)],
    [{ ...wake, method: "recordLeads", input: {} }],
  ])("is not a wake if it is %j", (body) => {
    expect(isWakeOf(body)).toBe(false);
  });
});
