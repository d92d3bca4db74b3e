import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { derivedId } from "../../../../src/contract/ids.ts";
import { ingest } from "../../../../src/records/ingest/consumer.ts";
import { automationReport, recordAutomation } from "../../../support/api.ts";
import { BROKEN, CONNECTION_LOST, observedDatabase } from "../../../support/deliveries.ts";
import { call, deployment, ingestBodies, openSource } from "../../../support/ingest.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";

const lines = keepLog();
const OVERLOADED = new Error("D1_ERROR: D1 DB is overloaded. Too many requests queued.");

describe("when D1 fails", () => {
  test.each([
    ["in the look-up", 1, CONNECTION_LOST],
    ["in the transaction", 2, CONNECTION_LOST],
    ["permanently, in the look-up", 1, BROKEN],
    ["permanently, in the transaction", 2, BROKEN],
  ])("%s, all valid messages come back, with growing waits", async (_, from, error) => {
    const { lead, leads, announced } = await openSource();
    const { DB } = observedDatabase({
      before: (trip) => {
        if (trip >= from) throw error;
      },
    });
    for (const [attempts, wait] of [[1, 10] as const, [2, 20] as const, [20, 3_600] as const]) {
      const { env: bindings, dead } = deployment({ DB });
      const result = await ingestBodies([lead("1"), "nonsense", lead("2")], bindings, attempts);
      expect(result).toEqual({ acknowledged: [1], retried: { 0: wait, 2: wait } });
      expect(dead).toHaveLength(1);
    }
    expect(await leads()).toEqual([]);
    await ingestBodies([lead("1"), lead("2")], deployment().env);
    expect([(await leads()).length, (await announced()).length]).toEqual([2, 2]);
  });

  test("because it is overloaded, nothing more is sent to it: all messages come back", async () => {
    const { lead } = await openSource();
    const { DB, trips } = observedDatabase({
      before: (trip) => {
        if (trip >= 2) throw OVERLOADED;
      },
    });
    const { env: bindings, dead } = deployment({ DB });
    const { retried } = await ingestBodies([lead("1"), lead("2"), lead("3")], bindings);
    expect(retried).toEqual({ 0: 10, 1: 10, 2: 10 });
    expect(trips).toHaveLength(2);
    expect(dead).toEqual([]);
  });

  test("for one of the messages that it has refused together, those behind it come back, too", async () => {
    const { lead, leads } = await openSource();
    const { DB } = observedDatabase({
      before: (trip) => {
        if (trip === 2) throw BROKEN;
        if (trip === 4) throw OVERLOADED;
      },
    });
    const { env: bindings } = deployment({ DB });
    const result = await ingestBodies([lead("1"), lead("2"), lead("3")], bindings);
    expect(result).toEqual({ acknowledged: [0], retried: { 1: 10, 2: 10 } });
    expect(await leads()).toHaveLength(1);
  });

  // The reply is lost, but the transaction was committed.
  test.each([
    ["transiently, it is retried unnoticed", [1, 2], {}],
    ["after it has committed, messages come back, and are recorded once", [2, 3, 4, 5], { 0: 10 }],
  ])("%s", async (_, trips, expected) => {
    const { lead, leads, announced } = await openSource();
    const { DB } = observedDatabase({
      after: (trip) => {
        if (trips.includes(trip)) throw CONNECTION_LOST;
      },
    });
    const { retried } = await ingestBodies([lead("1")], deployment({ DB }).env);
    expect(retried).toEqual(expected);
    if (retried[0]) await ingestBodies([lead("1")], deployment().env, 2);
    expect([(await leads()).length, await announced()]).toEqual([1, ["lead.created"]]);
  });

  test("nothing is acknowledged before it is in the database or in the dead-letter queue", async () => {
    const { lead } = await openSource();
    const steps: string[] = [];
    const { DB } = observedDatabase({ after: (trip) => void steps.push(`trip ${trip}`) });
    const DEAD_RECORDS = { send: async () => void steps.push("set aside") } as unknown as Queue;
    const { env: bindings } = deployment({ DB, DEAD_RECORDS });
    const messages = [lead("1"), "nonsense"].map((body, i) => ({
      id: String(i),
      timestamp: new Date(),
      attempts: 1,
      body,
      ack: () => steps.push(`acknowledged ${i}`),
      retry: () => expect.unreachable(),
    }));
    const batch = { queue: "platform-records", messages } as unknown as MessageBatch<unknown>;
    await ingest(batch.messages, bindings);
    expect(steps).toEqual(["trip 1", "trip 2", "set aside", "acknowledged 0", "acknowledged 1"]);
  });
});

describe("a message that the database rejects within a shared transaction", () => {
  test("comes back alone: an automation was removed since the look-up", async () => {
    const { workspaceId, lead, run, leads, runs, announced } = await openSource();
    const kept = await recordAutomation(workspaceId);
    const removed = await recordAutomation(workspaceId);
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip === 2)
          await WORKSPACE_DB.prepare("DELETE FROM automations WHERE id = ?").bind(removed).run();
      },
    });
    const { env: bindings, dead } = deployment({ DB });
    const bodies = [lead("1"), run("1", kept), run("2", removed), lead("2"), run("3", kept)];
    const result = await ingestBodies(bodies, bindings);
    expect(result).toEqual({ acknowledged: [0, 1, 3, 4], retried: { 2: 10 } });
    expect([await leads(), await runs()].map(({ length }) => length)).toEqual([2, 2]);
    expect(await announced()).toHaveLength(4);
    expect(dead).toEqual([]);
    const failed = lines.filter((line) => line.includes('"record_failed"'));
    expect(failed).toEqual([expect.stringContaining('"messageId":"2"')]);
    // The next look-up finds what is wrong with it.
    const again = (ageSeconds: number) =>
      ingestBodies([run("2", removed)], bindings, 2, new Date(Date.now() - ageSeconds * 1_000));
    const [wait] = Object.values((await again(30)).retried);
    expect([30, 31]).toContain(wait);
    await again(900);
    const reason = "runs[0].automationId: no such automation in this workspace";
    expect(dead).toMatchObject([{ reason }]);
  });

  test("comes back alone: its workspace has disappeared since the look-up", async () => {
    const [gone, source] = [await openSource(), await openSource()];
    const { DB } = observedDatabase({
      before: async (trip) => {
        const { workspaceId } = gone;
        if (trip === 2) await exports.Platform.eraseWorkspace({ workspaceId });
      },
    });
    const { env: bindings, dead } = deployment({ DB });
    const bodies = [source.lead("1"), gone.lead("1"), source.lead("2")];
    const result = await ingestBodies(bodies, bindings);
    expect(result).toEqual({ acknowledged: [0, 2], retried: { 1: 10 } });
    expect(await source.leads()).toHaveLength(2);
    await ingestBodies([gone.lead("1")], bindings, 2);
    expect(dead).toMatchObject([{ reason: "workspaceId: no such workspace" }]);
  });

  test("is recorded and announced once by two tries, even if what it refers to was removed and came back in between", async () => {
    const { workspaceId, run, runs, announced } = await openSource();
    const doomed = await recordAutomation(workspaceId);
    const automations = [automationReport("a")];
    const ids = [await derivedId("automation", workspaceId, "a")];
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip === 2)
          await WORKSPACE_DB.prepare("DELETE FROM automations WHERE id = ?").bind(doomed).run();
      },
      after: async (trip) => {
        if (trip !== 4) return;
        await exports.Platform.removeAutomations({ workspaceId, ids });
        await exports.Platform.recordAutomations({ workspaceId, automations });
        throw CONNECTION_LOST;
      },
    });
    const report = call("recordAutomations", { workspaceId, automations });
    const bodies = [report, run("1", ids[0] as string), run("2", doomed)];
    const { acknowledged } = await ingestBodies(bodies, deployment({ DB }).env);
    expect(acknowledged).toEqual([0, 1]);
    expect(await runs()).toEqual([]);
    expect((await announced()).filter((type) => type === "run.completed")).toHaveLength(1);
  });
});

test("a run from before its automation's removal stays removed, even if the batch reports the automation again", async () => {
  const { workspaceId, run, runs, announced } = await openSource();
  const automations = [automationReport("a")];
  const ids = [await derivedId("automation", workspaceId, "a")];
  const report = call("recordAutomations", { workspaceId, automations });
  const bodies = [report, run("1", ids[0] as string)];
  await ingestBodies(bodies, deployment().env);
  expect(await runs()).toHaveLength(1);
  const { DB } = observedDatabase({
    before: async (trip) => {
      if (trip === 2) await exports.Platform.removeAutomations({ workspaceId, ids });
    },
  });
  const result = await ingestBodies(bodies, deployment({ DB }).env);
  expect(result).toEqual({ acknowledged: [0, 1], retried: {} });
  expect(await runs()).toEqual([]);
  expect((await announced()).filter((type) => type === "run.completed")).toHaveLength(1);
});
