import {
  createExecutionContext,
  createMessageBatch,
  getQueueResult,
  waitOnExecutionContext,
} from "cloudflare:test";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { randomId } from "../../src/contract/ids.ts";
import worker from "../../src/index.ts";
import { isWake } from "../../src/webhooks/dispatch/wake.ts";
import { leadReport, openListeningWorkspace } from "../support/api.ts";
import { owed, receivedBy, statesOf } from "../support/deliveries.ts";
import { call, deployment } from "../support/ingest.ts";
import { keepLog } from "../support/log-lines.ts";
import { WORKSPACE_DB } from "../support/placement.ts";

const lines = keepLog();

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

  test("sets aside what is unknown, or resembles a wake or a record, with a reason and without logging any of it", async () => {
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
    ];
    const { env: bindings, dead } = deployment();
    const { acknowledged, retried } = await deliver("platform-records", resembling, bindings);
    expect(retried).toEqual([]);
    expect(acknowledged).toHaveLength(resembling.length);
    expect(dead.map(({ message }) => message)).toEqual(JSON.parse(JSON.stringify(resembling)));
    for (const { reason } of dead) expect(reason).toMatch(REASON);
    expect(lines.join()).not.toMatch(/canary|DB_99/);
    expect(await statesOf(id)).toEqual({ pending: 1 });
    await deliver("platform-records", [...resembling, wake], bindings);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

/** JSON of any shape, often with the fields of a wake or a record, and with values that break code. */
function anyJson() {
  const hostile = fc.constantFrom(
    '{"toString":null,"valueOf":null}',
    '{"toJSON":1,"then":1,"length":1e9}',
    '{"__proto__":null,"constructor":{"prototype":null}}',
    nested(1_000),
  );
  const value = fc.oneof(fc.json({ maxDepth: 3 }), hostile);
  const or = (...usual: string[]) =>
    fc.oneof(fc.constantFrom(...usual.map((text) => JSON.stringify(text))), value);
  const wake = {
    subscriptionId: or(randomId("webhook"), "x"),
    lane: or("fast"),
    database: or("DB"),
  };
  const input = objectOf({ workspaceId: value, leads: value, ids: value });
  const methods = or("recordLeads", "removeAutomations", "constructor");
  const record = { method: methods, input: fc.oneof(value, input) };
  const both = objectOf({ ...wake, ...record, other: value });
  const shapes = fc.oneof(value, objectOf(wake), objectOf(record), both);
  const broken = fc.constantFrom("{", `{"method":"recordLeads","input":${nested(60_000)}}`);
  const texts = fc.oneof(shapes, broken).map((text) => JSON.stringify(text));
  return fc.oneof(shapes, texts);
}

/** JSON of an array in an array, and so on, to this depth. */
function nested(depth: number): string {
  return "[".repeat(depth) + "]".repeat(depth);
}

/** JSON of an object with some of the fields, which are JSON themselves. */
function objectOf(fields: Record<string, fc.Arbitrary<string>>) {
  return fc.record(fields, { requiredKeys: [] }).map((some) => {
    const entries = Object.entries(some).map(([name, json]) => `"${name}":${json}`);
    return `{${entries.join()}}`;
  });
}

test("whatever one message is, the ninety-nine around it are recorded and it is dealt with", async () => {
  const { workspaceId } = await openListeningWorkspace();
  let recorded = 0;
  await fc.assert(
    fc.asyncProperty(anyJson(), fc.nat(99), async (json, place) => {
      const message = JSON.parse(json);
      const bodies: unknown[] = Array.from({ length: 99 }, () => {
        const leads = [leadReport(String(recorded++))];
        return call("recordLeads", { workspaceId, leads });
      });
      bodies.splice(place, 0, message);
      const { env: bindings, dead } = deployment();
      const { acknowledged, retried } = await deliver("platform-records", bodies, bindings);
      expect(retried).toEqual([]);
      expect(acknowledged).toHaveLength(100);
      // A message that is a whole wake is done with once it is acknowledged.
      if (isWake({ body: message } as Message, bindings)) expect(dead).toEqual([]);
      else {
        expect(JSON.stringify(dead.map((letter) => letter.message))).toBe(
          JSON.stringify([message]),
        );
        expect(dead[0]?.reason).toMatch(REASON);
      }
    }),
    { numRuns: 10 },
  );
  const stored = WORKSPACE_DB.prepare("SELECT count(*) AS n FROM leads WHERE workspace_id = ?");
  expect(await stored.bind(workspaceId).first("n")).toBe(recorded);
});
