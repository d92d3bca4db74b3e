import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { derivedId } from "../../../../src/contract/ids.ts";
import type { Automation } from "../../../../src/records/automations.ts";
import type { Lead } from "../../../../src/records/leads.ts";
import type { Run } from "../../../../src/records/runs.ts";
import {
  type AutomationReport,
  automationReport,
  eventsOf,
  leadReport,
  listAll,
  openListeningWorkspace,
  type RunReport,
  recordAutomation,
  runReport,
} from "../../../support/api.ts";
import { deliveriesTo, observedDatabase, subscribe } from "../../../support/deliveries.ts";
import { call, deployment, ingestBodies } from "../../../support/ingest.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";

type Workspace = Awaited<ReturnType<typeof openListeningWorkspace>>;

function listed<Item>({ api }: Workspace, path: string): Promise<Item[]> {
  return listAll(api, path);
}

const range = (count: number) => Array.from({ length: count }, (_, i) => i);

const lines = keepLog();

describe("a batch", () => {
  test("of 100 messages is one transaction, after one look-up", async () => {
    const workspaces = [await openListeningWorkspace(), await openListeningWorkspace()];
    const subscriptions = await Promise.all(
      workspaces.map(({ workspaceId }) => subscribe(workspaceId)),
    );
    const { DB, trips } = observedDatabase();
    const { env: bindings, fast, dead } = deployment({ DB });
    const bodies = range(100).map((i) => {
      const { workspaceId } = workspaces[i % 2] as Workspace;
      return call("recordLeads", { workspaceId, leads: [leadReport(`lead-${i}`)] });
    });
    const { acknowledged } = await ingestBodies(bodies, bindings);
    expect(acknowledged).toEqual(range(100));
    expect(dead).toEqual([]);
    expect(trips).toHaveLength(2);
    expect(trips[0]?.filter((sql) => !/^\s*SELECT/i.test(sql))).toEqual([]);
    expect(trips[1]?.filter((sql) => /insert into "leads"/.test(sql))).toHaveLength(100);
    for (const [i, workspace] of workspaces.entries()) {
      expect(await listed<Lead>(workspace, "leads")).toHaveLength(50);
      expect(await eventsOf(workspace.workspaceId)).toHaveLength(50);
      expect(await deliveriesTo(subscriptions[i]?.id ?? "")).toHaveLength(50);
    }
    expect(fast.map(({ subscriptionId }) => subscriptionId).sort()).toEqual(
      subscriptions.map(({ id }) => id).sort(),
    );
  });

  test("records its messages in order, each seeing those before it", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const automationId = await derivedId("automation", workspaceId, "a");
    const removed = await derivedId("automation", workspaceId, "b");
    const leadId = await derivedId("lead", workspaceId, "l");
    const automations = (...reports: AutomationReport[]) =>
      call("recordAutomations", { workspaceId, automations: reports });
    const runs = (...reports: RunReport[]) => call("recordRuns", { workspaceId, runs: reports });
    const { env: bindings, dead } = deployment();
    const result = await ingestBodies(
      [
        automations(automationReport("a", { status: "draft" }), automationReport("b")),
        automations(automationReport("a", { status: "active" })),
        automations(automationReport("a", { status: "paused" })),
        call("recordLeads", { workspaceId, leads: [leadReport("l", { name: "Zoë" })] }),
        runs(runReport("1", automationId, { leadId }), runReport("2", removed)),
        call("removeAutomations", { workspaceId, ids: [removed] }),
        runs(runReport("3", removed)),
        runs(runReport("4", automationId)),
      ],
      bindings,
    );
    expect(result).toEqual({ acknowledged: [0, 1, 2, 3, 4, 5, 7], retried: { 6: 5 } });
    expect(dead).toEqual([]);
    const automation = { id: automationId, status: "paused" };
    expect(await listed(workspace, "automations")).toMatchObject([automation]);
    expect(await listed(workspace, "leads")).toMatchObject([{ id: leadId, name: "Zoë" }]);
    const ran = await listed<Run>(workspace, "runs");
    expect(ran.map((run) => run.lead_id).sort()).toEqual([leadId, null]);
    const events = await eventsOf(workspaceId);
    const told = events.map(({ type, data }) => ("status" in data ? [type, data.status] : [type]));
    expect(told).toEqual([
      ["automation.status_changed", "active"],
      ["automation.status_changed", "paused"],
      ["lead.created"],
      ["run.completed", "success"],
      ["run.completed", "success"],
      ["run.completed", "success"],
    ]);
  });

  test.each([
    ["that is too large for one transaction", 30, 2, "é".repeat(25_000), [0, 9, 0, 9, 0, 9, 0, 3]],
    ["with too many records for one transaction", 25, 90, "", [0, 11, 11, 3]],
  ])("%s is split into several, in order", async (_, messages, each, notes, expected) => {
    const { workspaceId } = await openListeningWorkspace();
    const lead = (n: number) => leadReport(`lead-${n}`, { customFields: { notes } });
    const bodies = range(messages).map((i) =>
      call("recordLeads", { workspaceId, leads: range(each).map((n) => lead(each * i + n)) }),
    );
    const { DB, trips } = observedDatabase();
    const { acknowledged } = await ingestBodies(bodies, deployment({ DB }).env);
    expect(acknowledged).toEqual(range(messages));
    const inserted = trips.map((trip) => trip.filter((sql) => sql.includes('into "leads"')).length);
    expect(inserted).toEqual(expected);
    const stored = WORKSPACE_DB.prepare("SELECT count(*) AS n FROM leads WHERE workspace_id = ?");
    expect(await stored.bind(workspaceId).first("n")).toBe(messages * each);
  });

  test("logs its result in one line", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const lead = call("recordLeads", { workspaceId, leads: [leadReport("1")] });
    const early = call("recordRuns", { workspaceId, runs: [runReport("1", "aut_1")] });
    lines.length = 0;
    await ingestBodies([lead, early, "nonsense"], deployment().env);
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { event: "record_set_aside", messageId: "2" },
      { event: "records", messages: 3, recorded: 1, early: 1, setAside: 1 },
    ]);
  });
});

describe("the time when a message was sent", () => {
  const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);

  test("dates its content: one that comes late, or twice, changes nothing newer", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId, api } = workspace;
    const { env: bindings } = deployment();
    const status = (status: "active" | "paused" | "error") =>
      call("recordAutomations", { workspaceId, automations: [automationReport("1", { status })] });
    const shown = () => listed<Automation>(workspace, "automations");
    const tenAgo = minutesAgo(10);
    await ingestBodies([status("active")], bindings, 1, minutesAgo(30));
    await ingestBodies([status("paused")], bindings, 1, tenAgo);
    const [{ id, updated_at } = {} as Automation] = await shown();
    expect(updated_at).toBe(tenAgo.toISOString());
    await ingestBodies([status("error")], bindings, 1, minutesAgo(20));
    expect(await shown()).toMatchObject([{ status: "paused" }]);
    await api.patch(`/v1/automations/${id}`, { status: "active" });
    await ingestBodies([status("paused")], bindings, 1, tenAgo);
    expect(await shown()).toMatchObject([{ status: "active" }]);
    expect(await eventsOf(workspaceId)).toHaveLength(2);
  });

  test("limits a removal: an automation recorded again since then is kept", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const { env: bindings } = deployment();
    const report = call("recordAutomations", {
      workspaceId,
      automations: [automationReport("1")],
    });
    const ids = [await derivedId("automation", workspaceId, "1")];
    const removal = call("removeAutomations", { workspaceId, ids });
    for (const [message, minutes, left] of [
      [report, 30, 1],
      [removal, 20, 0],
      [report, 10, 1],
      [removal, 20, 1],
      [removal, 5, 0],
    ] as const) {
      await ingestBodies([message], bindings, 1, minutesAgo(minutes));
      expect(await listed(workspace, "automations")).toHaveLength(left);
    }
  });

  test("dates a lead without a time", async () => {
    const workspace = await openListeningWorkspace();
    const sentAt = minutesAgo(3);
    const input = { workspaceId: workspace.workspaceId, leads: [leadReport("1")] };
    await ingestBodies([call("recordLeads", input)], deployment().env, 1, sentAt);
    const created_at = sentAt.toISOString();
    expect(await listed<Lead>(workspace, "leads")).toMatchObject([{ created_at }]);
  });

  test("limits how long it waits for its automation: 15 minutes, with growing waits", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const run = call("recordRuns", { workspaceId, runs: [runReport("1", "aut_1")] });
    const { env: bindings, dead } = deployment();
    // However often it was tried: D1 may have been down.
    for (const [ageSeconds, wait] of [
      [0, 5],
      [4, 5],
      [20, 20],
      [300, 300],
      [880, 20],
    ] as const) {
      const sentAt = new Date(Date.now() - ageSeconds * 1_000);
      const { retried } = await ingestBodies([run], bindings, 15, sentAt);
      expect(Math.abs((retried[0] as number) - wait)).toBeLessThanOrEqual(1);
    }
    expect(dead).toEqual([]);
    expect((await ingestBodies([run], bindings, 2, minutesAgo(15))).acknowledged).toEqual([0]);
    expect(dead).toHaveLength(1);
    // One that is older on arrival gets a second chance: its automation may be right behind.
    expect((await ingestBodies([run], bindings, 1, minutesAgo(60))).retried).toEqual({ 0: 60 });
    expect((await ingestBodies([run], bindings, 2, minutesAgo(61))).retried).toEqual({});
    expect(dead).toHaveLength(2);
  });
});

test("the same reference is recorded once and announced once: in a call, in a batch, and when a batch comes again", async () => {
  const workspace = await openListeningWorkspace();
  const { workspaceId } = workspace;
  const { id } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  const automationId = await recordAutomation(workspaceId);
  const leads = ["First", "Second", "Third"].map((name) => leadReport("1", { name }));
  const run = call("recordRuns", { workspaceId, runs: [runReport("1", automationId)] });
  const bodies = [
    call("recordLeads", { workspaceId, leads: leads.slice(0, 2) }),
    call("recordLeads", { workspaceId, leads: leads.slice(2) }),
    run,
    run,
  ];
  const { env: bindings } = deployment();
  for (let i = 0; i < 3; i++)
    expect((await ingestBodies(bodies, bindings)).acknowledged).toEqual([0, 1, 2, 3]);
  expect(await listed<Lead>(workspace, "leads")).toMatchObject([{ name: "First" }]);
  expect(await listed<Run>(workspace, "runs")).toHaveLength(1);
  const types = (await eventsOf(workspaceId)).map(({ type }) => type);
  expect(types).toEqual(["lead.created", "run.completed"]);
  expect(await deliveriesTo(id)).toHaveLength(2);
});

test("a message may be a JSON string, its bytes, or come through the deployment's queue", async () => {
  const workspace = await openListeningWorkspace();
  const { workspaceId } = workspace;
  const lead = (reference: string) =>
    call("recordLeads", { workspaceId, leads: [leadReport(reference)] });
  const text = (reference: string) => JSON.stringify(lead(reference));
  const bodies = [text("1"), new TextEncoder().encode(text("2")).buffer];
  expect((await ingestBodies(bodies, deployment().env)).acknowledged).toEqual([0, 1]);
  const sent = [{ body: lead("3") }, { body: "nonsense", contentType: "text" as const }];
  await env.RECORDS.sendBatch([...sent, { body: lead("4") }]);
  await vi.waitFor(
    async () => expect(await listed<Lead>(workspace, "leads")).toHaveLength(4),
    10_000,
  );
});
