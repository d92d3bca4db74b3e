import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { commit } from "../../../src/db/client.ts";
import { deliveries } from "../../../src/db/schema.ts";
import type { Lane } from "../../../src/webhooks/dispatch/policy.ts";
import { findOverdue, isWake, listDue, type Wake, wake } from "../../../src/webhooks/wake.ts";
import {
  db,
  isolated,
  MINUTE_MS,
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

const WAKE = { subscriptionId: randomId("webhook"), lane: "fast" };
test.each([
  [true, WAKE],
  [true, { ...WAKE, lane: "slow" }],
  [true, { ...WAKE, database: "DB" }],
  [false, null],
  [false, WAKE.subscriptionId],
  [false, [WAKE]],
  [false, { lane: "fast" }],
  [false, { ...WAKE, lane: "middle" }],
  [false, { ...WAKE, subscriptionId: 1 }],
  [false, { ...WAKE, subscriptionId: randomId("lead") }],
  [false, { ...WAKE, subscriptionId: `${WAKE.subscriptionId}0` }],
  [false, { ...WAKE, database: null }],
  [false, { ...WAKE, database: "DB_9" }],
  [false, { ...WAKE, database: "KEY_GATE" }],
  [false, { ...WAKE, database: ["DB"] }],
  [false, { ...WAKE, database: { toString: null, valueOf: null } }],
  [false, JSON.parse(`{ "__proto__": {}, ${JSON.stringify(WAKE).slice(1)}`)],
  [false, { ...WAKE, method: "recordLeads", input: {} }],
])("a queue message is a wake if it is exactly what wakes are: %s for %j", (isOne, body) => {
  expect(isWake({ body } as Message, env)).toBe(isOne);
});

test("a deleted subscription whose deliveries wait to be cancelled is not woken by new events", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  const due = () => commit(db, listDue(workspaceId, NOW));
  expect(await due()).toEqual([{ subscriptionId: id, lane: "fast" }]);
  await setSubscription(id, { deletedAt: NOW, cancelling: true });
  expect(await due()).toEqual([]);
});

describe("the search for overdue deliveries", () => {
  beforeEach(() => db.delete(deliveries));

  /** More subscriptions than one sweep wakes, each owed one event. */
  async function crowd(count: number): Promise<string[]> {
    const { id, workspaceId, drafts } = await owed(1, NOW);
    const ids = Array.from({ length: count }, (_, i) => `whk_${String(i).padStart(25, "0")}`);
    const list = JSON.stringify(ids);
    await db.run(sql`INSERT OR IGNORE INTO subscriptions (id, workspace_id, url, events, sealed_secret, created_at)
      SELECT value, ${workspaceId}, 'https://crowd.example/', '["lead.created"]', '', 0 FROM json_each(${list})`);
    await db.run(sql`INSERT INTO deliveries (subscription_id, event_id, workspace_id, type, state, due_at)
      SELECT value, ${drafts[0]?.id}, ${workspaceId}, 'lead.created', 'pending', ${NOW} FROM json_each(${list})`);
    await db.delete(deliveries).where(sql`subscription_id = ${id}`);
    return ids;
  }

  test("continues where it stopped, and starts over at the end", async () => {
    const ids = await crowd(2_200);
    const later = NOW + 2 * MINUTE_MS;
    const found: string[] = [];
    for (let [part, after] = [0, ""]; part < 3; part++) {
      const next = await findOverdue(db, after, later);
      expect(next.wakes).toHaveLength([1_000, 1_000, 200][part] as number);
      found.push(...next.wakes.map(({ subscriptionId }) => subscriptionId));
      after = next.after;
      expect(after === "").toBe(part === 2);
    }
    expect(found).toEqual(ids);
  });

  test("skips what is waiting and what is held", async () => {
    const [waiting, held, slow] = [await owed(1, NOW), await owed(1, NOW), await owed(1, NOW)];
    const later = NOW + 2 * MINUTE_MS;
    await setSubscription(waiting.id, { nextAt: later - 1, backoff: 1 });
    await setSubscription(held.id, { leasedUntil: later + 1 });
    await setSubscription(slow.id, { slow: true });
    const woken = [{ subscriptionId: slow.id, lane: "slow" }];
    expect((await findOverdue(db, "", later)).wakes).toEqual(woken);
    const { wakes } = await findOverdue(db, "", later + MINUTE_MS);
    const ids = [waiting.id, held.id, slow.id];
    expect(wakes.map(({ subscriptionId }) => subscriptionId).toSorted()).toEqual(ids.toSorted());
  });
});
