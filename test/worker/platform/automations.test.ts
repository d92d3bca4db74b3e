import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { AutomationStatus } from "../../../src/contract/enumerations.ts";
import type { Automation } from "../../../src/records/automations.ts";
import {
  type AutomationReport,
  automationReport,
  errorOf,
  eventsOf,
  leadReport,
  openListeningWorkspace,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";

const { Platform } = exports;

/** A workspace with an automation that is reported several times. */
async function openReported(first: Partial<AutomationReport> = {}) {
  const workspace = await openListeningWorkspace();
  const { workspaceId, api } = workspace;
  const report = async (differences: Partial<AutomationReport>) => {
    const automations = [automationReport("1", { ...first, ...differences })];
    const { ids } = await Platform.recordAutomations({ workspaceId, automations });
    return ids[0] as string;
  };
  const id = await report({});
  const read = async () => (await api.get<Automation>(`/v1/automations/${id}`)).body;
  return { ...workspace, id, report, read };
}

async function listed({
  api,
}: Awaited<ReturnType<typeof openListeningWorkspace>>): Promise<Automation[]> {
  return (await api.get<{ data: Automation[] }>("/v1/automations?limit=100")).body.data;
}

function statuses(events: Awaited<ReturnType<typeof eventsOf>>): unknown[] {
  return events.map(({ data }) => "status" in data && data.status);
}

describe("recordAutomations", () => {
  test.each([
    ["social_comments", "Réponse aux commentaires – Agence Lumière"],
    ["social_story", "Réponse aux stories – Agence Lumière"],
    ["social_messages", "Réponse aux messages – Agence Lumière"],
    ["lead_ads", "Réponse aux formulaires publicitaires – Agence Lumière"],
  ] as const)(
    "composes the name of a %s automation, whatever name is reported, and again when the agent is renamed",
    async (type, name) => {
      const { report, read } = await openReported({ type });
      expect(await read()).toMatchObject({ type, name });
      await report({ name: "Mine" });
      expect(await read()).toMatchObject({ name });
      await report({ agent: { reference: "agent-1", name: "Agence Soleil" } });
      const renamed = { name: name.replace("Lumière", "Soleil"), agent_name: "Agence Soleil" };
      expect(await read()).toMatchObject(renamed);
    },
  );

  test("gives the same reference the same id, and changes nothing that is the same", async () => {
    const { workspaceId, id, report, read } = await openReported({
      updatedAt: "2026-01-01T00:00:00Z",
    });
    const before = await read();
    expect(await report({})).toBe(id);
    expect(await report({ updatedAt: "2026-01-01T01:00:00+01:00" })).toBe(id);
    expect(await report({ updatedAt: null })).toBe(id);
    expect(await read()).toEqual(before);
    expect(await eventsOf(workspaceId)).toEqual([]);
    const row = WORKSPACE_DB.prepare("SELECT revision FROM automations WHERE id = ?").bind(id);
    expect(await row.first("revision")).toBe(1);
  });

  test("updates every field", async () => {
    const { id, report, read } = await openReported({
      type: "crm_source",
      name: "Before",
      updatedAt: "2026-01-01T00:00:00Z",
    });
    expect(
      await report({
        type: "crm_source",
        name: "After",
        provider: "pipedrive",
        agent: { reference: "agent-2", name: "Autre agence" },
        status: "error",
        updatedAt: "2026-02-02T02:02:02.002Z",
      }),
    ).toBe(id);
    expect(await read()).toEqual({
      id,
      name: "After",
      type: "crm_source",
      provider: "pipedrive",
      agent_id: expect.stringMatching(/^agt_/),
      agent_name: "Autre agence",
      status: "error",
      updated_at: "2026-02-02T02:02:02.002Z",
    });
  });

  test("dates a change by its report if it has no updatedAt, and only a change", async () => {
    const { report, read } = await openReported({ updatedAt: "2026-01-01T00:00:00Z" });
    const startedAt = new Date().toISOString();
    await report({ updatedAt: null });
    expect((await read()).updated_at).toBe("2026-01-01T00:00:00.000Z");
    await report({ updatedAt: null, provider: "facebook" });
    const { updated_at } = await read();
    expect(updated_at >= startedAt && updated_at <= new Date().toISOString()).toBe(true);
  });

  test("applies the reported updatedAt, even without another change", async () => {
    const { workspaceId, report, read } = await openReported({ updatedAt: "2026-01-01T00:00:00Z" });
    await report({ updatedAt: "2026-03-03T00:00:00Z" });
    expect((await read()).updated_at).toBe("2026-03-03T00:00:00.000Z");
    expect(await eventsOf(workspaceId)).toEqual([]);
  });

  test("announces a change to active or paused, from any status, and neither another change nor a new one", async () => {
    const all: AutomationStatus[] = ["active", "paused", "draft", "error"];
    const changes = all.flatMap((from) =>
      all.map((to) => ({ from, to, name: `${from} to ${to}` })),
    );
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const report = (which: "from" | "to", updatedAt: string) =>
      Platform.recordAutomations({
        workspaceId,
        automations: changes.map(({ name, ...change }) =>
          automationReport(name, { provider: name, status: change[which], updatedAt }),
        ),
      });
    expect(await report("from", "2026-01-01T00:00:00Z")).toMatchObject({ created: 16 });
    const { ids } = await report("to", "2026-03-03T00:00:00Z");
    const shown = new Map((await listed(workspace)).map((one) => [one.id, one]));
    expect(ids.map((id) => shown.get(id))).toMatchObject(
      changes.map(({ name, to }) => ({ provider: name, status: to })),
    );
    const announced = changes.flatMap(({ from, to }, i) =>
      from !== to && (to === "active" || to === "paused") ? [ids[i]] : [],
    );
    const events = await eventsOf(workspaceId);
    expect(events.map(({ data }) => data.id).toSorted()).toEqual(announced.toSorted());
    for (const { data, ...event } of events) {
      expect(data).toEqual(shown.get(data.id));
      expect(event).toEqual({
        id: expect.stringMatching(/^evt_/),
        type: "automation.status_changed",
        created_at: expect.stringMatching(/Z$/),
      });
    }
  });

  test("announces a change once, however often and by however many callers it is reported", async () => {
    const { workspaceId, report } = await openReported({ status: "active" });
    await Promise.all(Array.from({ length: 10 }, () => report({ status: "paused" })));
    await report({ status: "paused" });
    expect(statuses(await eventsOf(workspaceId))).toEqual(["paused"]);
  });

  test("overrides a client's change if reported, and announces it", async () => {
    const { workspaceId, api, id, report, read } = await openReported({ status: "active" });
    await api.patch(`/v1/automations/${id}`, { status: "paused" });
    await report({ status: "active" });
    expect((await read()).status).toBe("active");
    expect(statuses(await eventsOf(workspaceId))).toEqual(["paused", "active"]);
  });

  test("applies the last of several reports of one reference in a call", async () => {
    const { workspaceId, id, read } = await openReported({ status: "active" });
    const { ids } = await Platform.recordAutomations({
      workspaceId,
      automations: [
        automationReport("1", { status: "paused" }),
        automationReport("2"),
        automationReport("1", { status: "error" }),
      ],
    });
    expect(ids).toEqual([id, expect.stringMatching(/^aut_/), id]);
    expect((await read()).status).toBe("error");
    expect(await eventsOf(workspaceId)).toEqual([]);
  });

  describe("in order of time", () => {
    const MARCH = "2026-03-03T00:00:00Z";

    test("changes and announces nothing for a report older than what is stored", async () => {
      const { workspaceId, report, read } = await openReported({ updatedAt: MARCH });
      const before = await read();
      for (const updatedAt of ["2026-03-02T23:59:59.999Z", "2026-03-03T00:59:59+01:00"])
        await report({ status: "paused", provider: "facebook", updatedAt });
      expect(await read()).toEqual(before);
      expect(await eventsOf(workspaceId)).toEqual([]);
    });

    test("an older report overrides neither a PATCH nor a report without a time", async () => {
      const { workspaceId, api, id, report, read } = await openReported({ updatedAt: MARCH });
      await api.patch(`/v1/automations/${id}`, { status: "paused" });
      await report({ status: "active", updatedAt: "2026-04-04T00:00:00Z" });
      expect((await read()).status).toBe("paused");
      await report({ status: "error", updatedAt: null });
      await report({ status: "active", updatedAt: "2026-05-05T00:00:00Z" });
      expect((await read()).status).toBe("error");
      expect(statuses(await eventsOf(workspaceId))).toEqual(["paused"]);
    });

    test("applies the later of two reports with the same time, if they differ", async () => {
      const { workspaceId, report, read } = await openReported({ updatedAt: MARCH });
      await report({ status: "paused" });
      const updated_at = "2026-03-03T00:00:00.000Z";
      expect(await read()).toMatchObject({ status: "paused", updated_at });
      expect(statuses(await eventsOf(workspaceId))).toEqual(["paused"]);
    });

    test("applies the newest of several reports in a call, wherever it is", async () => {
      const { workspaceId, read } = await openReported({ updatedAt: MARCH });
      const automations = [
        automationReport("1", { status: "paused", updatedAt: "2026-03-05T00:00:00Z" }),
        automationReport("1", { status: "error", updatedAt: "2026-03-04T00:00:00Z" }),
      ];
      await Platform.recordAutomations({ workspaceId, automations });
      expect((await read()).status).toBe("paused");
    });

    test("dates a PATCH after the report that it changes, even if that came from a clock ahead", async () => {
      const ahead = new Date(Date.now() + 60_000).toISOString();
      const { api, id, report, read } = await openReported({ updatedAt: ahead });
      await api.patch(`/v1/automations/${id}`, { status: "paused" });
      await report({});
      expect(await read()).toMatchObject({ status: "paused" });
      expect((await read()).updated_at > ahead).toBe(true);
    });
  });

  test.each([
    [{ type: "whatsapp" }, "automations[1].type: "],
    [{ status: "stopped" }, "automations[1].status: "],
    [{ provider: "" }, "automations[1].provider: "],
    [{ reference: "" }, "automations[1].reference: "],
    [{ reference: "a".repeat(513) }, "automations[1].reference: "],
    [{ agent: { reference: "1" } }, "automations[1].agent.name is missing"],
    [{ agent: null }, "automations[1].agent: "],
    [{ updatedAt: "yesterday" }, "automations[1].updatedAt: Invalid ISO datetime"],
    [{ updatedAt: "2026-02-29T00:00:00Z" }, "automations[1].updatedAt: Invalid ISO datetime"],
    [{ updatedAt: 1_767_225_600_000 }, "automations[1].updatedAt: "],
    [{ type: "crm_source" }, "automations[1].name: required for a crm_source automation"],
    [{ type: "crm_source", name: "" }, "automations[1].name: "],
    [{ provider: "a\0" }, "automations[1].provider: must be well-formed text"],
    [{ provider: "\ud83d" }, "automations[1].provider: must be well-formed text"],
    [{ owner: "x" }, 'automations[1]: Unrecognized key: "owner"'],
  ])("says which report is wrong and where, and writes none: %j", async (differences, message) => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const automations = [
      automationReport("1"),
      automationReport("2", differences as Partial<AutomationReport>),
    ];
    expect(await errorOf(Platform.recordAutomations({ workspaceId, automations }))).toContain(
      `recordAutomations: ${message}`,
    );
    expect(await listed(workspace)).toEqual([]);
  });
});

test("recordAutomations returns how many are new, or back after a removal", async () => {
  const { workspaceId } = await openListeningWorkspace();
  const record = (...references: string[]) =>
    Platform.recordAutomations({
      workspaceId,
      automations: references.map((reference) => automationReport(reference)),
    });
  const first = await record("a", "b", "a");
  expect(first.created).toBe(2);
  expect((await record("c", "b")).created).toBe(1);
  const renamed = automationReport("a", { agent: { reference: "agent-1", name: "Soleil" } });
  const again = await Platform.recordAutomations({ workspaceId, automations: [renamed] });
  expect(again.created).toBe(0);
  await Platform.removeAutomations({ workspaceId, ids: [String(first.ids[0])] });
  expect((await record("a", "b")).created).toBe(1);
});

describe("removeAutomations", () => {
  test("removes automations and their runs, but not leads and other automations", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId, api } = workspace;
    const gone = await recordAutomation(workspaceId);
    const kept = await recordAutomation(workspaceId);
    const { ids: leads } = await Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    const { ids: runs } = await Platform.recordRuns({
      workspaceId,
      runs: [runReport("1", gone, { leadId: leads[0] ?? null }), runReport("2", kept)],
    });
    const removal = await Platform.removeAutomations({ workspaceId, ids: [gone] });
    expect(removal).toEqual({ removed: 1 });
    const idsOf = async (path: string) =>
      (await api.get<{ data: { id: string }[] }>(path)).body.data.map(({ id }) => id);
    expect(await idsOf("/v1/automations")).toEqual([kept]);
    expect(await idsOf("/v1/runs")).toEqual([runs[1]]);
    expect(await idsOf("/v1/leads")).toEqual(leads);
  });

  test("can be called again, and ignores unknown ids", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const id = await recordAutomation(workspaceId);
    const removals: number[] = [];
    for (const ids of [[id], [id, "aut_unknown"]])
      removals.push((await Platform.removeAutomations({ workspaceId, ids })).removed);
    expect(removals).toEqual([1, 0]);
  });

  test("removes nothing of another workspace", async () => {
    const [one, other] = await Promise.all([openListeningWorkspace(), openListeningWorkspace()]);
    const id = await recordAutomation(one.workspaceId);
    await Platform.removeAutomations({ workspaceId: other.workspaceId, ids: [id] });
    expect((await listed(one)).map((automation) => automation.id)).toEqual([id]);
  });

  test("causes no event; recorded again, the automation is back under its id, without its runs", async () => {
    const { workspaceId, api, id, report, read } = await openReported();
    await Platform.recordRuns({ workspaceId, runs: [runReport("1", id)] });
    const before = await eventsOf(workspaceId);
    await Platform.removeAutomations({ workspaceId, ids: [id] });
    expect(await eventsOf(workspaceId)).toEqual(before);
    expect(await report({})).toBe(id);
    expect(await read()).toMatchObject({ id, status: "active" });
    expect((await api.get(`/v1/automations/${id}/runs`)).body).toMatchObject({ data: [] });
  });
});
