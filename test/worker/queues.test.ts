import {
  createExecutionContext,
  createMessageBatch,
  getQueueResult,
  waitOnExecutionContext,
} from "cloudflare:test";
import { describe, expect, test } from "vitest";
import worker from "../../src/index.ts";
import { leadReport, openListeningWorkspace } from "../support/api.ts";
import { owed, receivedBy, statesOf } from "../support/deliveries.ts";
import { call, deployment } from "../support/ingest.ts";
import { keepLog } from "../support/log-lines.ts";

const lines = keepLog();

/** JSON of an array in an array, and so on, to this depth. */
const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

const REASON = /^(message|recordLeads|removeAutomations): \S/;

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

  test("sets aside what is unknown, or resembles a wake or a record, among others that it records, with a reason and without logging any of it", async () => {
    const { id } = await owed(1, Date.now());
    const wake = { subscriptionId: id, lane: "fast" };
    const resembling = [
      null,
      "whk_1",
      {},
      { id },
      { subscriptionId: "x", lane: "fast", database: { toString: null, valueOf: null } },
      { ...wake, database: { toString: null, valueOf: null } },
      { ...wake, database: "DB_canary" },
      { ...wake, database: "DB_99" },
      { ...wake, method: "recordLeads", input: { workspaceId: "canary", leads: [] } },
      { ...wake, subscriptionId: "canary" },
      { method: { toString: null, valueOf: null }, input: "canary" },
      { method: "recordLeads", input: { toString: null, valueOf: null } },
      { method: "recordLeads", input: { workspaceId: { toString: null }, leads: "canary" } },
      JSON.parse('{ "method": "recordLeads", "__proto__": { "input": "canary" } }'),
      { method: "constructor", input: { toJSON: 1, length: 1e9 } },
      `{"method":"recordLeads","input":${nested(60_000)}}`,
      JSON.parse(nested(1_000)),
    ];
    const { workspaceId, api } = await openListeningWorkspace();
    const records = ["1", "2"].map((reference) =>
      call("recordLeads", { workspaceId, leads: [leadReport(reference)] }),
    );
    const { env: bindings, dead } = deployment();
    const around = [records[0], ...resembling, records[1]];
    const { acknowledged, retried } = await deliver("platform-records", around, bindings);
    expect(retried).toEqual([]);
    expect(acknowledged).toHaveLength(around.length);
    expect((await api.get<{ data: unknown[] }>("/v1/leads")).body.data).toHaveLength(2);
    expect(dead.map(({ message }) => message)).toEqual(JSON.parse(JSON.stringify(resembling)));
    for (const { reason } of dead) expect(reason).toMatch(REASON);
    expect(lines.join()).not.toMatch(/canary|DB_99/);
    expect(await statesOf(id)).toEqual({ pending: 1 });
    await deliver("platform-records", [...resembling, wake], bindings);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});
