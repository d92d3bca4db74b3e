import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Run } from "../../../src/records/runs.ts";
import {
  automationReport,
  errorOf,
  eventsOf,
  openListeningWorkspace,
  type RunReport,
  recordAutomation,
  recordLead,
  runReport,
} from "../../support/api.ts";

const { Platform } = exports;

/** A workspace with an automation and a lead, and its runs. */
async function openAutomation() {
  const workspace = await openListeningWorkspace();
  const { workspaceId, api } = workspace;
  const automationId = await recordAutomation(workspaceId);
  return {
    ...workspace,
    automationId,
    leadId: await recordLead(workspaceId),
    record: (...runs: RunReport[]) => Platform.recordRuns({ workspaceId, runs }),
    listed: async () => (await api.get<{ data: Run[] }>("/v1/runs?limit=100")).body.data,
    announced: async () =>
      (await eventsOf(workspaceId)).filter(({ type }) => type === "run.completed"),
  };
}

describe("recordRuns", () => {
  test("returns the ids in the order of the runs, and announces each one, whatever its status", async () => {
    const { automationId, leadId, record, listed, announced } = await openAutomation();
    const statuses = ["success", "partial", "failed"] as const;
    const actions = [{ type: "envoyé 📨", status: 'a "b" \\c' }, { status: "" }, { type: "x" }, {}];
    const { ids, ...rest } = await record(
      ...statuses.map((status, i) =>
        runReport(status, automationId, {
          status,
          leadId,
          occurredAt: `2026-01-0${i + 1}T00:00:00Z`,
          actions,
        }),
      ),
    );
    expect(rest).toEqual({ created: 3 });
    const shown = (await listed()).toReversed();
    expect(shown).toMatchObject(statuses.map((status, i) => ({ id: ids[i], status, actions })));
    const events = (await announced()).toSorted(
      (a, b) => ids.indexOf(a.data.id) - ids.indexOf(b.data.id),
    );
    expect(events).toEqual(
      shown.map((data) => ({
        id: expect.stringMatching(/^evt_[0-9a-z]+$/),
        type: "run.completed",
        created_at: expect.stringMatching(/Z$/),
        data,
      })),
    );
  });

  test("gives the same reference the same id, changes nothing and causes no second event", async () => {
    const { automationId, leadId, record, listed, announced } = await openAutomation();
    const { ids } = await record(runReport("1", automationId));
    const before = [await listed(), await announced()];
    const again = runReport("1", automationId, {
      status: "failed",
      triggerType: "message",
      occurredAt: "2020-01-01T00:00:00Z",
      actions: [{}],
      leadId,
    });
    expect(await record(again)).toEqual({ ids, created: 0 });
    expect([await listed(), await announced()]).toEqual(before);
  });

  test("shows occurredAt in UTC, and the time of the report if it is missing", async () => {
    const { automationId, record, listed } = await openAutomation();
    await record(runReport("1", automationId, { occurredAt: "2026-01-01T00:30:00+05:30" }));
    const startedAt = new Date().toISOString();
    await record(runReport("2", automationId));
    const [second, first] = await listed();
    expect(first?.occurred_at).toBe("2025-12-31T19:00:00.000Z");
    expect(String(second?.occurred_at) >= startedAt).toBe(true);
  });

  test("rejects an automation or lead that is unknown, removed or another workspace's, and writes no run", async () => {
    const { workspaceId, automationId, leadId, record, listed, announced } = await openAutomation();
    const stranger = await openAutomation();
    const removed = await recordAutomation(workspaceId);
    await Platform.removeAutomations({ workspaceId, ids: [removed] });
    const first = runReport("1", automationId, { leadId });
    for (const other of ["aut_unknown", removed, stranger.automationId, ""])
      expect(await errorOf(record(first, runReport("2", other)))).toContain(
        "runs[1].automationId: no such automation in this workspace",
      );
    for (const other of ["lea_unknown", stranger.leadId, ""])
      expect(await errorOf(record(first, { ...first, leadId: other }))).toContain(
        "runs[1].leadId: no such lead in this workspace",
      );
    expect([await listed(), await announced(), await stranger.listed()]).toEqual([[], [], []]);
  });

  test("returns how many runs are new, even after the removal of their automation", async () => {
    const { workspaceId, record } = await openAutomation();
    const automations = { workspaceId, automations: [automationReport("1")] };
    const { ids } = await Platform.recordAutomations(automations);
    const automationId = String(ids[0]);
    const runs = ["1", "2"].map((reference) => runReport(reference, automationId));
    expect((await record(...runs)).created).toBe(2);
    expect((await record(...runs, runReport("3", automationId))).created).toBe(1);
    await Platform.removeAutomations({ workspaceId, ids: [automationId] });
    await Platform.recordAutomations(automations);
    expect((await record(...runs)).created).toBe(2);
  });

  test.each([
    [{ status: "running" }, "runs[1].status: "],
    [{ triggerType: "cron" }, "runs[1].triggerType: "],
    [{ occurredAt: "now" }, "runs[1].occurredAt: Invalid ISO datetime"],
    [{ actions: {} }, "runs[1].actions: "],
    [{ actions: [{ type: 1 }] }, "runs[1].actions[0].type: "],
    [{ actions: [{}, { kind: "x" }] }, 'runs[1].actions[1]: Unrecognized key: "kind"'],
    [{ actions: [{ type: "\0" }] }, "runs[1].actions[0].type: must be well-formed text"],
    [{ actions: Array(101).fill({}) }, "runs[1].actions: "],
    [{ leadId: 1 }, "runs[1].leadId: "],
    [{ automationId: null }, "runs[1].automationId: "],
    [{ reference: undefined }, "runs[1].reference is missing"],
    [{ duration: 1 }, 'runs[1]: Unrecognized key: "duration"'],
  ])("says which run is wrong and where, and writes none: %j", async (differences, message) => {
    const { automationId, record, listed, announced } = await openAutomation();
    const second = runReport("2", automationId, differences as Partial<RunReport>);
    const error = await errorOf(record(runReport("1", automationId), second));
    expect(error).toContain(`recordRuns: ${message}`);
    expect([await listed(), await announced()]).toEqual([[], []]);
  });
});
