import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { derivedId } from "../../../../src/contract/ids.ts";
import { canariesIn } from "../../../node/support/canary.ts";
import { leadReport, recordAutomation, runReport } from "../../../support/api.ts";
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
  const UNSAFE =
    "recordLeads: leads[0].customFields.pages[0]: must be between -9007199254740991 and 9007199254740991";
  const unsafe = JSON.stringify(leads({ ...fine, customFields: { pages: [17] } }));
  const removal = { method: "removeAutomations", input: { workspaceId, ids: ["aut_1"] } };

  test.each<[string, unknown, method?: string]>([
    ["message: not JSON", "nonsense"],
    ["message: Invalid input: expected object, received array", "[]"],
    ["message: Invalid input: expected object, received null", null],
    ["message: method, input are missing", {}],
    ["message: method: Invalid option: ", { method: "createApiKey", input: {} }],
    ["message: method: Invalid option: ", { method: "constructor", input: {} }],
    ["message: input is missing", { method: "recordLeads" }],
    ['message: Unrecognized key: "priority"', { ...leads(fine), priority: 1 }],
    ["recordLeads: Invalid input: expected", { method: "recordLeads", input: [] }, "recordLeads"],
    ["recordLeads: leads: Too small", leads(), "recordLeads"],
    ["recordLeads: leads[1].source: Invalid", leads(fine, { ...fine, source: "x" }), "recordLeads"],
    [UNSAFE, unsafe.replace("17", "17841405822304915"), "recordLeads"],
    ["workspaceId: no such workspace", leads(fine), "recordLeads"],
    ["workspaceId: no such workspace", removal, "removeAutomations"],
  ])("is set aside with a reason, without affecting others: %s", async (says, bad, method) => {
    const source = await openSource();
    const { env: bindings, dead } = deployment();
    const bodies = [source.lead("1"), bad, source.lead("2")];
    const { acknowledged } = await ingestBodies(bodies, bindings);
    expect(acknowledged).toEqual([0, 1, 2]);
    const reason = expect.stringContaining(says);
    expect(dead).toEqual([{ reason, ...(method && { method }), message: bad }]);
    expect(await source.leads()).toHaveLength(2);
  });

  test("comes back, and is not lost, if the dead-letter queue refuses it", async () => {
    const { lead, leads } = await openSource();
    const DEAD_RECORDS = { send: () => REFUSING_QUEUE.sendBatch([]) } as unknown as Queue;
    const { env: bindings } = deployment({ DEAD_RECORDS });
    const result = await ingestBodies([lead("1"), "nonsense", lead("2")], bindings, 3);
    expect(result).toEqual({ acknowledged: [0, 2], retried: { 1: 40 } });
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
    const { field, ...fields } = person;
    const whole = leadReport("1", { ...fields, customFields: { field } });
    const input = (differences: object, workspace = workspaceId) => ({
      method: "recordLeads",
      input: { workspaceId: workspace, leads: [{ ...whole, ...differences }] },
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
      input({}, all),
      input({}, all.repeat(10)),
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

test("a run that refers to another workspace's automation or lead waits as for an unknown one, and is set aside", async () => {
  const [source, stranger] = [await openSource(), await openSource()];
  const { workspaceId } = source;
  const own = await recordAutomation(workspaceId);
  const foreign = await recordAutomation(stranger.workspaceId);
  const { env: bindings, dead } = deployment();
  await ingestBodies([stranger.lead("l")], bindings);
  const foreignLead = await derivedId("lead", stranger.workspaceId, "l");
  const withLead = (leadId: string) =>
    call("recordRuns", { workspaceId, runs: [runReport("3", own, { leadId })] });
  const unknown = [source.run("1", foreign), source.run("2", "aut_unknown")];
  const leadless = [withLead(foreignLead), withLead("lea_unknown")];
  // With valid messages for both workspaces in the same batch.
  const bodies = [...unknown, ...leadless, stranger.run("4", foreign), source.run("5", own)];
  const result = await ingestBodies(bodies, bindings);
  expect(result).toEqual({ acknowledged: [4, 5], retried: { 0: 5, 1: 5, 2: 5, 3: 5 } });
  expect(dead).toEqual([]);
  const { acknowledged } = await ingestBodies(bodies, bindings, 5, LONG_AGO);
  expect(acknowledged).toEqual([0, 1, 2, 3, 4, 5]);
  const letter = (reason: string) => (message: unknown) => ({
    reason: `runs[0].${reason} in this workspace`,
    method: "recordRuns",
    message,
  });
  expect(dead).toEqual([
    ...unknown.map(letter("automationId: no such automation")),
    ...leadless.map(letter("leadId: no such lead")),
  ]);
  expect(await source.runs()).toHaveLength(1);
  expect(await stranger.runs()).toHaveLength(1);
});
