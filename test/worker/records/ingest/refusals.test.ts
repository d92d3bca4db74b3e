import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { derivedId } from "../../../../src/contract/ids.ts";
import { canariesIn } from "../../../node/support/canary.ts";
import {
  automationReport,
  eventsOf,
  leadReport,
  recordAutomation,
  runReport,
} from "../../../support/api.ts";
import { BROKEN, observedDatabase, REFUSING_QUEUE } from "../../../support/deliveries.ts";
import { call, deployment, ingestBodies, openSource } from "../../../support/ingest.ts";
import { keepLog } from "../../../support/log-lines.ts";

/** When a message was sent that has waited long enough. */
const LONG_AGO = new Date("2026-01-01T00:00:00Z");

const lines = keepLog();

describe("an invalid message", () => {
  const workspaceId = "wks_0000000000000000000000000";
  const fine = leadReport("1");

  const leads = (...reports: object[]) => ({
    method: "recordLeads",
    input: { workspaceId, leads: reports },
  });
  const unsafe = JSON.stringify(leads({ ...fine, customFields: { pages: [17] } }));

  test.each<[unknown, string | undefined, string]>([
    ["nonsense", undefined, "message: not JSON"],
    ["[]", undefined, "message: Invalid input: expected object, received array"],
    [null, undefined, "message: Invalid input: expected object, received null"],
    [{}, undefined, "message: method, input are missing"],
    [{ method: "createApiKey", input: {} }, undefined, "message: method: Invalid option: "],
    [{ method: "constructor", input: {} }, undefined, "message: method: Invalid option: "],
    [{ method: "recordLeads" }, undefined, "message: input is missing"],
    [{ method: "recordLeads", input: [] }, "recordLeads", "recordLeads: Invalid input: expected"],
    [{ ...leads(fine), priority: 1 }, undefined, 'message: Unrecognized key: "priority"'],
    [leads(), "recordLeads", "recordLeads: leads: Too small"],
    [leads(fine, { ...fine, source: "x" }), "recordLeads", "recordLeads: leads[1].source: Invalid"],
    [
      unsafe.replace("17", "17841405822304915"),
      "recordLeads",
      "recordLeads: leads[0].customFields.pages[0]: must be between -9007199254740991 and 9007199254740991",
    ],
    [leads(fine), "recordLeads", "workspaceId: no such workspace"],
    [
      { method: "removeAutomations", input: { workspaceId, ids: ["aut_1"] } },
      "removeAutomations",
      "workspaceId: no such workspace",
    ],
  ])("is set aside with a reason, without affecting others: %j", async (bad, method, reason) => {
    const source = await openSource();
    const { env: bindings, dead } = deployment();
    const bodies = [source.lead("1"), bad, source.lead("2")];
    const { acknowledged } = await ingestBodies(bodies, bindings);
    expect(acknowledged).toEqual([0, 1, 2]);
    expect(dead).toEqual([
      { reason: expect.stringContaining(reason), ...(method ? { method } : {}), message: bad },
    ]);
    expect(await source.leads()).toHaveLength(2);
  });

  test("writes nothing, not even its valid parts", async () => {
    const { workspaceId, leads } = await openSource();
    const input = { workspaceId, leads: [leadReport("1"), leadReport("2", { name: "\0" })] };
    const { env: bindings, dead } = deployment();
    await ingestBodies([call("recordLeads", input)], bindings);
    expect(dead.map(({ reason }) => reason)).toEqual([
      "recordLeads: leads[1].name: must be well-formed text",
    ]);
    expect([await leads(), await eventsOf(workspaceId)]).toEqual([[], []]);
  });

  test("comes back, and is not lost, if the dead-letter queue refuses it", async () => {
    const { lead, leads } = await openSource();
    const DEAD_RECORDS = { send: () => REFUSING_QUEUE.sendBatch([]) } as unknown as Queue;
    const { env: bindings } = deployment({ DEAD_RECORDS });
    expect(await ingestBodies([lead("1"), "nonsense", lead("2")], bindings, 3)).toEqual({
      acknowledged: [0, 2],
      retried: { 1: 40 },
    });
    expect(await leads()).toHaveLength(2);
  });

  test("that leaves no room for a reason is set aside without one", async () => {
    const bodies = [{ method: "x".repeat(127_000) }, "x".repeat(127_000)];
    const { env: bindings, dead } = deployment();
    expect((await ingestBodies(bodies, bindings)).acknowledged).toEqual([0, 1]);
    expect(dead).toEqual(bodies);
    // The deployment's queue accepts them.
    expect((await ingestBodies(bodies, env)).acknowledged).toEqual([0, 1]);
  });

  test("has a reason of limited length, whatever its property names", async () => {
    const { env: bindings, dead } = deployment();
    await ingestBodies([{ method: "recordLeads", input: {}, ["x".repeat(50_000)]: 1 }], bindings);
    expect(dead[0]?.reason).toHaveLength(500);
  });

  test("leaves no personal data in the reason or in the log", async () => {
    const { workspaceId, lead } = await openSource();
    const person = {
      name: "Zoë Canari-Nom",
      email: "canari.courriel@example.com",
      phone: "+33639980042",
      field: "canari-champ-libre",
    };
    const all = Object.values(person).join(" ");
    const report = { ...leadReport("1"), ...person, customFields: { field: person.field } };
    const { field: _, ...whole } = report;
    const input = (differences: object) => ({
      method: "recordLeads",
      input: { workspaceId, leads: [{ ...whole, ...differences }] },
    });
    const bodies = [
      all,
      `{ "method": "recordLeads", "input": "${all}`,
      { method: all, input: whole },
      input({ source: all }),
      input({ createdAt: all }),
      input({ customFields: all }),
      input({ name: `${all}\0` }),
      input({ agent: all }),
      input({ agent: { reference: all.repeat(100), name: all } }),
      { method: "recordLeads", input: { workspaceId: all, leads: [whole] } },
      { method: "recordLeads", input: { workspaceId: all.repeat(10), leads: [whole] } },
      call("recordRuns", {
        workspaceId,
        runs: [runReport(all, all, { leadId: all.slice(0, 90) })],
      }),
    ];
    const { env: bindings, dead } = deployment();
    await ingestBodies(bodies, bindings, 5, LONG_AGO);
    expect(dead).toHaveLength(bodies.length);
    const { DB } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    await ingestBodies([input({})], deployment({ DB }).env);
    const refusing = deployment({ DEAD_RECORDS: { send: REFUSING_QUEUE.sendBatch } as never });
    await ingestBodies([...bodies, lead("1")], refusing.env, 5, LONG_AGO);
    expect(lines.length).toBeGreaterThan(bodies.length * 2);
    expect(canariesIn(dead.map(({ reason }) => reason).join("\n"), person)).toEqual([]);
    expect(canariesIn(lines.join("\n"), person)).toEqual([]);
  });
});

describe("a run", () => {
  test("that arrives before its automation waits for it", async () => {
    const { workspaceId, run, runs } = await openSource();
    const automationId = await derivedId("automation", workspaceId, "a");
    const automations = [automationReport("a")];
    const automation = call("recordAutomations", { workspaceId, automations });
    const { env: bindings, dead } = deployment();
    expect(await ingestBodies([run("1", automationId), automation], bindings)).toEqual({
      acknowledged: [1],
      retried: { 0: 5 },
    });
    const { acknowledged } = await ingestBodies([run("1", automationId)], bindings, 2);
    expect(acknowledged).toEqual([0]);
    expect(dead).toEqual([]);
    expect(await runs()).toHaveLength(1);
    expect(await eventsOf(workspaceId)).toHaveLength(1);
  });

  test("that refers to another workspace's automation or lead waits as for an unknown one, and is set aside", async () => {
    const [source, stranger] = [await openSource(), await openSource()];
    const { workspaceId } = source;
    const own = await recordAutomation(workspaceId);
    const foreign = await recordAutomation(stranger.workspaceId);
    const { env: bindings, dead } = deployment();
    await ingestBodies([stranger.lead("l")], bindings);
    const foreignLead = await derivedId("lead", stranger.workspaceId, "l");
    const withLead = (leadId: string) =>
      call("recordRuns", { workspaceId, runs: [runReport("3", own, { leadId })] });
    const bodies = [
      source.run("1", foreign),
      source.run("2", "aut_unknown"),
      withLead(foreignLead),
      withLead("lea_unknown"),
      // Valid messages for both workspaces in the same batch.
      stranger.run("4", foreign),
      source.run("5", own),
    ];
    expect(await ingestBodies(bodies, bindings)).toEqual({
      acknowledged: [4, 5],
      retried: { 0: 5, 1: 5, 2: 5, 3: 5 },
    });
    expect(dead).toEqual([]);
    const { acknowledged } = await ingestBodies(bodies, bindings, 5, LONG_AGO);
    expect(acknowledged).toEqual([0, 1, 2, 3, 4, 5]);
    const automation = "runs[0].automationId: no such automation in this workspace";
    const lead = "runs[0].leadId: no such lead in this workspace";
    const reasons = [automation, automation, lead, lead];
    expect(dead).toEqual(
      reasons.map((reason, i) => ({ reason, method: "recordRuns", message: bodies[i] })),
    );
    expect(await source.runs()).toHaveLength(1);
    expect(await stranger.runs()).toHaveLength(1);
  });
});
