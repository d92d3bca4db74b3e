import { describe, expect, test } from "vitest";
import type { AutomationStatus } from "../../../src/contract/enumerations.ts";
import { isoTime } from "../../../src/contract/time.ts";
import type { Automation } from "../../../src/records/automations.ts";
import {
  type AutomationReport,
  automationReport,
  eventsOf,
  listAll,
  openListeningWorkspace,
  Platform,
} from "../../support/api.ts";

/** A workspace with an automation that is reported several times. */
async function openReported(first: Partial<AutomationReport> = {}) {
  const workspace = await openListeningWorkspace();
  const { workspaceId, api } = workspace;
  const report = async (...reports: Partial<AutomationReport>[]) => {
    const automations = reports.map((each) => automationReport("1", { ...first, ...each }));
    const { ids } = await Platform.recordAutomations({ workspaceId, automations });
    return ids[0] as string;
  };
  const id = await report({});
  const read = async () => (await api.get<Automation>(`/v1/automations/${id}`)).body;
  /** The statuses that were announced. */
  const announced = async () =>
    (await eventsOf(workspaceId)).map(({ data }) => "status" in data && data.status);
  return { ...workspace, id, report, read, announced };
}

const MARCH = "2026-03-03T00:00:00Z";
const APRIL = "2026-04-04T00:00:00Z";
const AHEAD = new Date(Date.now() + 60_000).toISOString();

describe("recordAutomations", () => {
  test("composes the names of social automations, whatever name is reported", async () => {
    const { workspaceId, api } = await openListeningWorkspace();
    const labels = {
      social_comments: "Réponse aux commentaires",
      social_story: "Réponse aux stories",
      social_messages: "Réponse aux messages",
      lead_ads: "Réponse aux formulaires publicitaires",
    };
    const types = Object.keys(labels) as (keyof typeof labels)[];
    const agent = (name: string) => ({ agent: { reference: "agent-1", name } });
    for (const [differences, agentName] of [
      [agent("Agence Lumière"), "Agence Lumière"],
      [{ ...agent("Agence Lumière"), name: "Mine" }, "Agence Lumière"],
      [agent("Agence Soleil"), "Agence Soleil"],
    ] as const) {
      const automations = types.map((type) => automationReport(type, { type, ...differences }));
      await Platform.recordAutomations({ workspaceId, automations });
      const shown = await listAll<Automation>(api, "automations");
      const names = Object.fromEntries(shown.map(({ type, name }) => [type, name]));
      expect(names).toEqual(
        Object.fromEntries(types.map((type) => [type, `${labels[type]} – ${agentName}`])),
      );
      expect(shown.map(({ agent_name }) => agent_name)).toEqual(types.map(() => agentName));
    }
  });

  test("gives the same reference the same id, and changes nothing that is the same", async () => {
    const { id, report, read, announced } = await openReported({ updatedAt: MARCH });
    const before = await read();
    for (const updatedAt of [MARCH, "2026-03-03T01:00:00+01:00", null])
      expect(await report({ updatedAt })).toBe(id);
    expect([await read(), await announced()]).toEqual([before, []]);
  });

  test("updates every field, and dates a change by its report if it has no updatedAt", async () => {
    const { id, report, read } = await openReported({
      type: "crm_source",
      name: "Before",
      updatedAt: MARCH,
    });
    const agent = { reference: "agent-2", name: "Autre agence" };
    const startedAt = new Date().toISOString();
    await report({ name: "After", provider: "pipedrive", agent, status: "error", updatedAt: null });
    const { updated_at, ...shown } = await read();
    expect(updated_at >= startedAt && updated_at <= new Date().toISOString()).toBe(true);
    expect(shown).toEqual({
      id,
      name: "After",
      type: "crm_source",
      provider: "pipedrive",
      agent_id: expect.stringMatching(/^agt_/),
      agent_name: "Autre agence",
      status: "error",
    });
    await report({ updatedAt: AHEAD });
    expect(await read()).toMatchObject({ name: "Before", updated_at: AHEAD });
  });

  test("announces a change to active or paused, from any status, and nothing else", async () => {
    const all: AutomationStatus[] = ["active", "paused", "draft", "error"];
    const changes = all.flatMap((from) =>
      all.map((to) => ({ from, to, name: `${from} to ${to}` })),
    );
    const { workspaceId, api } = await openListeningWorkspace();
    const report = (which: "from" | "to", updatedAt: string) =>
      Platform.recordAutomations({
        workspaceId,
        automations: changes.map(({ name, ...change }) =>
          automationReport(name, { provider: name, status: change[which], updatedAt }),
        ),
      });
    expect(await report("from", MARCH)).toMatchObject({ created: 16 });
    const startedAt = new Date().toISOString();
    const { ids } = await report("to", APRIL);
    const shown = new Map(
      (await listAll<Automation>(api, "automations")).map((one) => [one.id, one]),
    );
    expect(ids.map((id) => shown.get(id))).toMatchObject(
      changes.map(({ name, to }) => ({ provider: name, status: to })),
    );
    const announced = changes.flatMap(({ from, to }, i) =>
      from !== to && (to === "active" || to === "paused") ? [ids[i]] : [],
    );
    const events = await eventsOf(workspaceId);
    expect(events.map(({ data }) => data.id).toSorted()).toEqual(announced.toSorted());
    for (const event of events)
      expect(event).toEqual({
        id: expect.stringMatching(/^evt_/),
        type: "automation.status_changed",
        // When it was reported, whenever the change is dated.
        created_at: expect.toSatisfy((at: string) => at >= startedAt),
        data: shown.get(event.data.id),
      });
  });

  test("announces a change once, however often and by however many callers it is reported", async () => {
    const { report, announced } = await openReported({ status: "active" });
    await Promise.all(Array.from({ length: 10 }, () => report({ status: "paused" })));
    await report({ status: "paused" });
    expect(await announced()).toEqual(["paused"]);
  });

  const PATCH = "a PATCH that pauses";
  type Dated = Pick<AutomationReport, "updatedAt" | "status">;
  const at = (updatedAt: string | null, status: Dated["status"] = "active"): Dated => {
    return { updatedAt, status };
  };
  type Step = typeof PATCH | Dated | Dated[];

  test.each<[string, Step[], [status: string, updatedAt: string | null, ...announced: string[]]]>([
    ["no older report", [at("2026-03-02T23:59:59.999Z", "paused")], ["active", MARCH]],
    [
      "no report of an earlier time",
      [at("2026-03-03T00:59:59+01:00", "paused")],
      ["active", MARCH],
    ],
    [
      "each of the same time",
      [at(MARCH, "paused"), at(MARCH), at(MARCH, "paused"), at(MARCH, "paused"), at(MARCH)],
      ["active", "2026-03-03T00:00:00.004Z", "paused", "active", "paused", "active"],
    ],
    ["a newer time alone", [at(APRIL)], ["active", APRIL]],
    [
      "a newer time alone, and the next one",
      [at(APRIL), at(APRIL, "paused")],
      ["paused", "2026-04-04T00:00:00.001Z", "paused"],
    ],
    ["each of a call", [[at(null, "paused"), at(null, "error")]], ["error", null, "paused"]],
    [
      "each of a call, sorted by time",
      [[at(null), at(APRIL, "paused"), at(MARCH, "error")]],
      ["active", null, "paused", "active"],
    ],
    [
      "each of a call with the same time, once",
      Array(3).fill([at(APRIL, "paused"), at(APRIL), at(APRIL), at(APRIL, "paused")]),
      ["paused", "2026-04-04T00:00:00.002Z", "paused", "active", "paused"],
    ],
    [
      "each of a call with the time of what is stored",
      [[at(MARCH, "paused"), at(MARCH)]],
      ["active", "2026-03-03T00:00:00.002Z", "paused", "active"],
    ],
    ["a PATCH, and no older report", [PATCH, at(APRIL)], ["paused", null, "paused"]],
    ["a PATCH after a clock ahead", [at(AHEAD), PATCH, at(AHEAD)], ["paused", null, "paused"]],
    ["a PATCH, then an undated report", [PATCH, at(null)], ["active", null, "paused", "active"]],
    ["an undated report, and no older one", [at(null, "error"), at(APRIL)], ["error", null]],
  ])("applies and announces %s", async (_, steps, [status, updatedAt, ...events]) => {
    const reported = await openReported({ updatedAt: MARCH });
    const { api, workspaceId, id, report, read, announced } = reported;
    for (const step of steps) {
      const before = await read();
      if (step !== PATCH) await report(...[step].flat());
      else {
        expect((await api.patch(`/v1/automations/${id}`, { status: "paused" })).status).toBe(200);
        expect((await read()).updated_at > before.updated_at).toBe(true);
      }
    }
    const shown = await read();
    expect(shown.status).toBe(status);
    if (updatedAt) expect(Date.parse(shown.updated_at)).toBe(Date.parse(updatedAt));
    expect(await announced()).toEqual(events);
    // In the order in which they happened, which is that of their ids, and so that in which they are sent.
    const sent = await eventsOf(workspaceId);
    expect(sent.map((event) => event.id)).toEqual(sent.map((event) => event.id).toSorted());
    const times = sent.map(({ data }) => "updated_at" in data && data.updated_at);
    expect(times).toEqual([...new Set(times)].toSorted());
  });

  test.each([
    ["a report", AHEAD, false, 1],
    ["a PATCH", AHEAD, true, 2],
  ])(
    "applies an undated report after %s of a clock ahead",
    async (_, updatedAt, patches, laterMs) => {
      // Long, so that the body of its event is stored apart.
      const agent = { reference: "1", name: 'é"\u2028/\\'.repeat(200) };
      const { api, workspaceId, id, report, read } = await openReported({ agent, updatedAt });
      if (patches) {
        const { status } = await api.patch(`/v1/automations/${id}`, { status: "paused" });
        expect(status).toBe(200);
      }
      expect(await read()).toMatchObject({ updated_at: expect.stringMatching(/^\d{4}-/) });
      const status = patches ? "active" : "paused";
      for (let i = 0; i < 2; i++) await report({ updatedAt: null, status });
      const shown = await read();
      const updated_at = isoTime(Date.parse(updatedAt) + laterMs);
      expect(shown).toMatchObject({ status, updated_at });
      expect((await eventsOf(workspaceId)).at(-1)?.data).toEqual(shown);
    },
  );

  test("returns the ids in order, and how many are new, or back after a removal", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const record = (...references: string[]) => {
      const automations = references.map((reference) => automationReport(reference));
      return Platform.recordAutomations({ workspaceId, automations });
    };
    const { ids, created } = await record("a", "b", "a");
    expect([created, ids[2] === ids[0], ids[1] === ids[0]]).toEqual([2, true, false]);
    expect((await record("c", "b")).created).toBe(1);
    const renamed = automationReport("a", { agent: { reference: "agent-1", name: "Soleil" } });
    const again = await Platform.recordAutomations({ workspaceId, automations: [renamed] });
    expect(again).toEqual({ ids: [ids[0]], created: 0 });
    await Platform.removeAutomations({ workspaceId, ids: [String(ids[0])] });
    expect((await record("a", "b")).created).toBe(1);
  });
});

test("A report from before a removal brings no automation back", async () => {
  const { api, workspaceId, id, report } = await openReported({ updatedAt: MARCH });
  expect((await api.patch(`/v1/automations/${id}`, { status: "paused" })).status).toBe(200);
  const early = new Date().toISOString();
  await new Promise((resolve) => setTimeout(resolve, 5));
  await Platform.removeAutomations({ workspaceId, ids: [id] });
  const since = new Date().toISOString();
  await new Promise((resolve) => setTimeout(resolve, 5));
  // As if the reply was lost.
  await Platform.removeAutomations({ workspaceId, ids: [id] });
  for (const updatedAt of [APRIL, early]) expect(await report({ updatedAt })).toBe(id);
  expect(await listAll(api, "automations")).toEqual([]);
  await report({ updatedAt: since });
  expect(await listAll(api, "automations")).toMatchObject([{ id, updated_at: since }]);
});
