import { eq } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { commit } from "../../../src/db/client.ts";
import { workspaces } from "../../../src/db/schema.ts";
import {
  noteMessage,
  type QueueName,
  selectWakeUps,
  sendWakeUps,
  type WakeUp,
} from "../../../src/delivery/wake.ts";
import {
  consumeBodies,
  failingSince,
  HOUR_MS,
  isolated,
  observedDatabase,
  owed,
  REFUSING_QUEUE,
  receivedBy,
  setSubscription,
  statesOf,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { db } from "../../support/placement.ts";

const lines = keepLog();
const NOW = Date.UTC(2026, 0, 5, 12);

/** Wakes in a queue, for subscriptions named `fast-0`, `fast-1`, … */
function wakes(queue: QueueName, count: number): WakeUp[] {
  return Array.from({ length: count }, (_, i) => ({ subscriptionId: `${queue}-${i}`, queue }));
}

describe("the consumer is woken", () => {
  test("in the queue of the subscription, which the message names, whatever the queue is called", async () => {
    const deployment = isolated();
    const mixed = [...wakes("fast", 2), ...wakes("slow", 3)];
    expect(await sendWakeUps(deployment.env, "DB", mixed)).toBe(true);
    const sent = (wakeUps: WakeUp[]) =>
      wakeUps.map((wake) => ({ ...wake, database: "DB", delaySeconds: 0 }));
    expect(deployment.fast).toEqual(sent(wakes("fast", 2)));
    expect(deployment.slow).toEqual(sent(wakes("slow", 3)));
  });

  test("in the database that its message names, after its delay in whole seconds", async () => {
    const { env: bindings, slow } = isolated();
    const named = { subscriptionId: "slow-0", queue: "slow" as const };
    const wakeAts = [-60, 29.5, 86_399.5].map((seconds) => Date.now() + seconds * 1000);
    for (const wakeAt of wakeAts) await sendWakeUps(bindings, "DB_2", [{ ...named, wakeAt }]);
    expect(slow).toEqual(
      [0, 30, 86_400].map((delaySeconds) => ({ ...named, database: "DB_2", delaySeconds })),
    );
  });

  test("in batches of at most 100, as Queues requires", async () => {
    const batches: number[] = [];
    const sendBatch = async (messages: unknown[]) => void batches.push(messages.length);
    const DELIVERIES = { sendBatch } as unknown as Queue;
    await sendWakeUps(isolated({ DELIVERIES }).env, "DB", wakes("fast", 201));
    expect(batches).toEqual([100, 100, 1]);
  });

  test("in the queue that works if the other one rejects them, and the caller is notified", async () => {
    const mixed = [...wakes("fast", 1), ...wakes("slow", 1)];
    const deployment = isolated({ DELIVERIES: REFUSING_QUEUE });
    expect(await sendWakeUps(deployment.env, "DB", mixed)).toBe(false);
    expect(deployment.slow).toHaveLength(1);
    const other = isolated({ SLOW_DELIVERIES: REFUSING_QUEUE });
    expect(await sendWakeUps(other.env, "DB", mixed)).toBe(false);
    expect(other.fast).toHaveLength(1);
  });
});

test("a deleted subscription whose deliveries wait to be cancelled is not woken by new events", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  const due = () => commit(db, selectWakeUps(workspaceId, NOW));
  expect(await due()).toEqual([{ subscriptionId: id, queue: "fast" }]);
  await setSubscription(id, { deletedAt: NOW, hasToEnd: true });
  expect(await due()).toEqual([]);
});

test.each([
  ["no message will arrive, wakes its subscription", 0, true],
  ["a message arrives in time, wakes nobody", NOW + HOUR_MS, false],
  ["a message arrives too late, wakes its subscription", NOW + HOUR_MS + 1, true],
])(
  "an event that is recorded while its circuit is open, and %s",
  async (_, nextMessageAt, isWoken) => {
    const { id, workspaceId } = await owed(1, NOW);
    await setSubscription(id, { ...failingSince(NOW, 1, NOW + HOUR_MS), nextMessageAt });
    const wakeUps = await commit(db, selectWakeUps(workspaceId, NOW));
    expect(wakeUps.map(({ subscriptionId }) => subscriptionId)).toEqual(isWoken ? [id] : []);
  },
);

test("a subscription that a dispatch leases is not woken by new events", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  await setSubscription(id, { leasedBy: "dispatch", leasedUntil: NOW + 1 });
  expect(await commit(db, selectWakeUps(workspaceId, NOW))).toEqual([]);
  expect(await commit(db, selectWakeUps(workspaceId, NOW + 1))).toHaveLength(1);
});

test("the message of a dispatch that ends as its workspace is locked is not noted, which is no error", async () => {
  const { id: subscriptionId, workspaceId } = await owed(1, NOW);
  for (const [writeLock, noted] of [["locked", 0] as const, [null, NOW] as const]) {
    await db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, workspaceId));
    await noteMessage(db, { subscriptionId, queue: "fast", wakeAt: NOW });
    expect((await subscriptionRow(subscriptionId)).nextMessageAt).toBe(noted);
  }
});

test("The queue consumer drops invalid messages from any queue, without logging their content", async () => {
  const { id, url } = await owed(1, Date.now());
  const wake = { subscriptionId: id, queue: "fast", database: "DB" };
  const resembling = [
    ...[null, "whk_1", id, [wake], {}, { id }, { ...wake, database: undefined }],
    { ...wake, queue: "middle" },
    ...[1, "canary", `${id}0`, randomId("lead")].map((subscriptionId) => {
      return { ...wake, subscriptionId };
    }),
    ...[null, 7, "", "DB_canary", "DB_99", "KEY_GATE", ["DB"]].map((database) => {
      return { ...wake, database };
    }),
    { ...wake, database: { toString: null, valueOf: null } },
    { ...wake, method: "recordLeads" },
    JSON.parse(`{ "__proto__": {}, ${JSON.stringify(wake).slice(1)}`),
  ];
  const { DB, trips } = observedDatabase();
  await consumeBodies(resembling, isolated({ DB }).env);
  expect(trips).toEqual([]);
  expect(await statesOf(id)).toEqual({ pending: 1 });
  const result = await consumeBodies([...resembling, wake], isolated().env);
  expect(result).toMatchObject({
    explicitAcks: [...resembling, wake].map((_, i) => `message-${i}`),
    retryMessages: [],
  });
  expect(await receivedBy({ url })).toHaveLength(1);
  expect(lines.join()).not.toMatch(/canary|DB_99/);
});
