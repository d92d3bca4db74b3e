import {
  createExecutionContext,
  createMessageBatch,
  getQueueResult,
  waitOnExecutionContext,
} from "cloudflare:test";
import { describe, expect, test } from "vitest";
import { randomId } from "../../src/contract/ids.ts";
import worker from "../../src/index.ts";
import { isolated, owed, receivedBy, statesOf } from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";

const lines = keepLog();

/** Passes a batch to the Worker's queue consumer. */
async function deliver(queue: string, bodies: unknown[], bindings: Env) {
  const messages = bodies.map((body, i) => ({
    id: String(i),
    timestamp: new Date(),
    attempts: 1,
    body,
  }));
  const batch = createMessageBatch(queue, messages);
  const context = createExecutionContext();
  await worker.queue(batch, bindings, context);
  await waitOnExecutionContext(context);
  const { explicitAcks, retryMessages } = await getQueueResult(batch, context);
  return { acknowledged: explicitAcks.toSorted(), retried: retryMessages };
}

describe("the queue consumer", () => {
  test.each(["webhook-deliveries", "renamed-by-whoever-deploys"])(
    "drops what only resembles a wake, in a queue called %s, without logging any of it",
    async (queue) => {
      const { id, url } = await owed(1, Date.now());
      const wake = { subscriptionId: id, lane: "fast" };
      const resembling = [
        ...[null, "whk_1", id, [wake], {}, { id }, { lane: "fast" }],
        { ...wake, lane: "middle" },
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
      await deliver(queue, resembling, isolated().env);
      expect(await statesOf(id)).toEqual({ pending: 1 });
      const result = await deliver(queue, [...resembling, wake], isolated().env);
      expect(result).toMatchObject({ acknowledged: [String(resembling.length)], retried: [] });
      expect(await receivedBy({ url })).toHaveLength(1);
      expect(lines.join()).not.toMatch(/canary|DB_99/);
    },
  );
});
