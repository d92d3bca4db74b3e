import {
  createExecutionContext,
  createMessageBatch,
  getQueueResult,
  waitOnExecutionContext,
} from "cloudflare:test";
import { describe, expect, test } from "vitest";
import worker from "../../../src/index.ts";
import { leadReport, openListeningWorkspace } from "../../support/api.ts";
import { owed, receivedBy, statesOf } from "../../support/deliveries.ts";
import { call, deployment } from "../../support/ingest.ts";
import { keepLog } from "../../support/log-lines.ts";

keepLog();

/** Passes a batch to the Worker's queue door. */
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

describe("the queue door", () => {
  test.each(["webhook-deliveries", "platform-records", "renamed-by-whoever-deploys"])(
    "tells a wake from a record by its shape, in a queue called %s",
    async (queue) => {
      const { id, url } = await owed(1, Date.now());
      const { workspaceId, api } = await openListeningWorkspace();
      const { env: bindings, dead } = deployment();
      const bodies = [
        { subscriptionId: id, lane: "fast" },
        call("recordLeads", { workspaceId, leads: [leadReport("lead-1")] }),
      ];
      const result = await deliver(queue, bodies, bindings);
      expect(result).toEqual({ acknowledged: ["0", "1"], retried: [] });
      expect(await receivedBy({ url })).toHaveLength(1);
      expect((await api.get<{ data: unknown[] }>("/v1/leads")).body.data).toHaveLength(1);
      expect(dead).toEqual([]);
    },
  );

  test("sets aside unknown messages, without affecting others", async () => {
    const { id } = await owed(2, Date.now());
    const unknown = [
      null,
      1,
      "whk_1",
      [],
      {},
      { subscriptionId: id },
      { subscriptionId: 1, lane: "fast" },
      { subscriptionId: id, lane: "middle" },
      { id },
    ];
    const { env: bindings, dead } = deployment();
    const bodies = [...unknown, { subscriptionId: id, lane: "fast" }];
    const { acknowledged, retried } = await deliver("webhook-deliveries", bodies, bindings);
    expect(retried).toEqual([]);
    expect(acknowledged).toHaveLength(bodies.length);
    expect(await statesOf(id)).toEqual({ delivered: 2 });
    expect(dead.map(({ message }) => message)).toEqual(unknown);
  });
});
