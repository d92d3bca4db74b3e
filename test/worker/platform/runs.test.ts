import { expect, test } from "vitest";
import type { Run } from "../../../src/records/runs.ts";
import {
  errorOf,
  eventsOf,
  listAll,
  openListeningWorkspace,
  Platform,
  type RunReport,
  recordAutomation,
  recordLead,
  runReport,
} from "../../support/api.ts";

/** A workspace with an automation and a lead, and its runs. */
async function openAutomation() {
  const workspace = await openListeningWorkspace();
  const { workspaceId, api } = workspace;
  return {
    workspaceId,
    automationId: await recordAutomation(workspaceId),
    leadId: await recordLead(workspaceId),
    record: (...runs: RunReport[]) => Platform.recordRuns({ workspaceId, runs }),
    listed: () => listAll<Run>(api, "runs"),
    announced: async () =>
      (await eventsOf(workspaceId)).filter(({ type }) => type === "run.completed"),
  };
}

test("recordRuns returns the ids in the order of the runs, and announces each one, whatever its status", async () => {
  const { automationId, leadId, record, listed, announced } = await openAutomation();
  const statuses = ["success", "partial", "failed"] as const;
  const actions = [{ type: "envoyé 📨", status: 'a "b" \\c' }, { status: "" }, { type: "x" }, {}];
  const reports = statuses.map((status, i) => {
    const occurredAt = `2026-01-0${i + 1}T00:30:00+05:30`;
    return runReport(status, automationId, { status, leadId, occurredAt, actions });
  });
  const { ids, created } = await record(...reports);
  expect(created).toBe(3);
  const shown = (await listed()).toReversed();
  const times = ["2025-12-31", "2026-01-01", "2026-01-02"].map((day) => `${day}T19:00:00.000Z`);
  expect(shown).toMatchObject(
    statuses.map((status, i) => ({ id: ids[i], status, actions, occurred_at: times[i] })),
  );
  const events = await announced();
  expect(ids.map((id) => events.find(({ data }) => data.id === id))).toEqual(
    shown.map((data) => ({
      id: expect.stringMatching(/^evt_[0-9a-z]+$/),
      type: "run.completed",
      created_at: expect.stringMatching(/Z$/),
      data,
    })),
  );
  expect(events).toHaveLength(3);
});

test("a run of a known reference has its id, changes nothing and causes no second event", async () => {
  const { automationId, leadId, record, listed, announced } = await openAutomation();
  const startedAt = new Date().toISOString();
  const { ids } = await record(runReport("1", automationId));
  const [shown] = await listed();
  expect(String(shown?.occurred_at) >= startedAt).toBe(true);
  const before = [[shown], await announced()];
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

test("recordRuns rejects an automation or lead that is unknown, removed or another workspace's, and writes no run", async () => {
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
