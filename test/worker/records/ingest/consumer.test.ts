import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { derivedId } from "../../../../src/contract/ids.ts";
import type { Automation } from "../../../../src/records/automations.ts";
import {
  type AutomationReport,
  automationReport,
  eventsOf,
  leadReport,
  listAll,
  openListeningWorkspace,
  openWorkspace,
  recordAutomation,
  runReport,
} from "../../../support/api.ts";
import { deliveriesTo, observedDatabase, subscribe } from "../../../support/deliveries.ts";
import { call, deployment, ingestBodies, openSource } from "../../../support/ingest.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";

const range = (count: number) => Array.from({ length: count }, (_, i) => i);

const lines = keepLog();

describe("a batch", () => {
  test("of 100 messages is one transaction, after one look-up", async () => {
    const sources = [await openSource(), await openSource()] as const;
    const subscribed = sources.map(({ workspaceId }) => subscribe(workspaceId));
    const subscriptions = (await Promise.all(subscribed)).map(({ id }) => id);
    const { DB, trips } = observedDatabase();
    const { env: bindings, fast, dead } = deployment({ DB });
    const bodies = range(100).map((i) => sources[i % 2 ? 1 : 0].lead(`lead-${i}`));
    const { acknowledged } = await ingestBodies(bodies, bindings);
    expect(acknowledged).toEqual(range(100));
    expect(dead).toEqual([]);
    expect(trips).toHaveLength(2);
    expect(trips[0]?.filter((sql) => !/^\s*SELECT/i.test(sql))).toEqual([]);
    expect(trips[1]?.filter((sql) => /insert into "leads"/.test(sql))).toHaveLength(100);
    for (const [i, { leads, announced }] of sources.entries()) {
      expect([(await leads()).length, (await announced()).length]).toEqual([50, 50]);
      expect(await deliveriesTo(subscriptions[i] ?? "")).toHaveLength(50);
    }
    expect(fast.map(({ subscriptionId }) => subscriptionId).sort()).toEqual(subscriptions.sort());
  });

  test("records its messages in order, each seeing those before it", async () => {
    const { workspaceId, api, run, runs, leads } = await openSource();
    const automationId = await derivedId("automation", workspaceId, "a");
    const removed = await derivedId("automation", workspaceId, "b");
    const leadId = await derivedId("lead", workspaceId, "l");
    const automations = (...reports: AutomationReport[]) =>
      call("recordAutomations", { workspaceId, automations: reports });
    const linked = runReport("1", automationId, { leadId });
    const { env: bindings, dead } = deployment();
    const result = await ingestBodies(
      [
        automations(automationReport("a", { status: "draft" }), automationReport("b")),
        automations(automationReport("a", { status: "active" })),
        automations(automationReport("a", { status: "paused" })),
        call("recordLeads", { workspaceId, leads: [leadReport("l", { name: "Zoë" })] }),
        call("recordRuns", { workspaceId, runs: [linked, runReport("2", removed)] }),
        call("removeAutomations", { workspaceId, ids: [removed] }),
        run("3", removed),
        run("4", automationId),
      ],
      bindings,
    );
    expect(result).toEqual({ acknowledged: [0, 1, 2, 3, 4, 5, 7], retried: { 6: 5 } });
    expect(dead).toEqual([]);
    const automation = { id: automationId, status: "paused" };
    expect(await listAll(api, "automations")).toMatchObject([automation]);
    expect(await leads()).toMatchObject([{ id: leadId, name: "Zoë" }]);
    expect((await runs()).map((each) => each.lead_id).sort()).toEqual([leadId, null]);
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
    const { lead, run } = await openSource();
    lines.length = 0;
    await ingestBodies([lead("1"), run("1", "aut_1"), "nonsense"], deployment().env);
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { event: "record_set_aside", messageId: "2" },
      { event: "records", messages: 3, recorded: 1, early: 1, setAside: 1 },
    ]);
  });
});

describe("the time when a message was sent", () => {
  const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);

  test("dates its content: one that comes late, or twice, changes nothing newer", async () => {
    const { workspaceId, api } = await openListeningWorkspace();
    const { env: bindings } = deployment();
    const status = (status: "active" | "paused" | "error") =>
      call("recordAutomations", { workspaceId, automations: [automationReport("1", { status })] });
    const shown = () => listAll<Automation>(api, "automations");
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
    const { workspaceId, api } = await openWorkspace();
    const { env: bindings } = deployment();
    const automations = [automationReport("1")];
    const report = call("recordAutomations", { workspaceId, automations });
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
      expect(await listAll(api, "automations")).toHaveLength(left);
    }
  });

  test("dates a lead or run without a time", async () => {
    const { workspaceId, lead, leads, run, runs } = await openSource();
    const sentAt = minutesAgo(3);
    const ran = run("1", await recordAutomation(workspaceId));
    await ingestBodies([lead("1"), ran], deployment().env, 1, sentAt);
    expect(await leads()).toMatchObject([{ created_at: sentAt.toISOString() }]);
    expect(await runs()).toMatchObject([{ occurred_at: sentAt.toISOString() }]);
  });

  test("limits how long it waits for its automation: 15 minutes, with growing waits", async () => {
    const run = (await openSource()).run("1", "aut_1");
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
  const { workspaceId, lead, run, leads, runs, announced } = await openSource();
  const { id } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  const ran = run("1", await recordAutomation(workspaceId));
  const reports = ["First", "Second"].map((name) => leadReport("1", { name }));
  const bodies = [call("recordLeads", { workspaceId, leads: reports }), lead("1"), ran, ran];
  const { env: bindings } = deployment();
  for (let i = 0; i < 3; i++)
    expect((await ingestBodies(bodies, bindings)).acknowledged).toEqual([0, 1, 2, 3]);
  expect(await leads()).toMatchObject([{ name: "First" }]);
  expect(await runs()).toHaveLength(1);
  expect(await announced()).toEqual(["lead.created", "run.completed"]);
  expect(await deliveriesTo(id)).toHaveLength(2);
});

test("a message may be a JSON string, its bytes, or come through the deployment's queue", async () => {
  const { lead, leads } = await openSource();
  const text = (reference: string) => JSON.stringify(lead(reference));
  const bodies = [text("1"), new TextEncoder().encode(text("2")).buffer];
  expect((await ingestBodies(bodies, deployment().env)).acknowledged).toEqual([0, 1]);
  const sent = [{ body: lead("3") }, { body: "nonsense", contentType: "text" as const }];
  await env.RECORDS.sendBatch([...sent, { body: lead("4") }]);
  await vi.waitFor(async () => expect(await leads()).toHaveLength(4), 10_000);
});
