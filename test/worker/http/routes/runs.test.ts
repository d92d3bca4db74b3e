import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Page as PageOf } from "../../../../src/http/paging.ts";
import type { Run } from "../../../../src/records/runs.ts";
import {
  EMPTY_PAGE,
  invalid,
  openWorkspace,
  recordAutomation,
  recordLead,
  runReport,
  success,
} from "../../../support/api.ts";

type Page = PageOf<Run>;

/** A workspace with two automations; the first has three runs, the second one. */
async function openRuns() {
  const workspace = await openWorkspace();
  const { workspaceId } = workspace;
  const automationId = await recordAutomation(workspaceId);
  const otherId = await recordAutomation(workspaceId);
  const { ids } = await exports.Platform.recordRuns({
    workspaceId,
    runs: [
      runReport("1", automationId, { occurredAt: "2026-01-01T00:00:00Z" }),
      runReport("2", otherId, { occurredAt: "2026-01-02T00:00:00Z" }),
      runReport("3", automationId, { occurredAt: "2026-01-03T00:00:00Z" }),
      runReport("4", automationId, { occurredAt: "2026-01-03T00:00:00Z" }),
    ],
  });
  return { ...workspace, automationId, otherId, ids: ids as [string, string, string, string] };
}

describe("GET /runs", () => {
  test("returns runs with exactly the fields of the contract", async () => {
    const { workspaceId, api } = await openWorkspace();
    const automationId = await recordAutomation(workspaceId);
    const leadId = await recordLead(workspaceId);
    const actions = [{ type: "send_message", status: "success" }, { type: "tag" }, {}];
    const { ids } = await exports.Platform.recordRuns({
      workspaceId,
      runs: [
        runReport("1", automationId, {
          status: "partial",
          triggerType: "story_reply",
          occurredAt: "2026-03-14T09:26:53.589Z",
          actions,
          leadId,
        }),
        runReport("2", automationId, { occurredAt: "2026-03-13T00:00:00Z" }),
      ],
    });
    for (const id of ids) expect(id).toMatch(/^run_[0-9a-z]+$/);
    expect(await api.get("/v1/runs")).toEqual(
      success(200, {
        ...EMPTY_PAGE,
        data: [
          {
            id: ids[0],
            automation_id: automationId,
            status: "partial",
            trigger_type: "story_reply",
            occurred_at: "2026-03-14T09:26:53.589Z",
            actions,
            lead_id: leadId,
          },
          {
            id: ids[1],
            automation_id: automationId,
            status: "success",
            trigger_type: "comment",
            occurred_at: "2026-03-13T00:00:00.000Z",
            actions: [],
            lead_id: null,
          },
        ],
      }),
    );
  });
});

describe("GET /automations/{id}/runs", () => {
  test("returns the runs of this automation only, as GET /runs does, newest first, page by page", async () => {
    const { workspaceId, api, automationId, otherId, ids } = await openRuns();
    const [one, two, three, four] = ids;
    const path = `/v1/automations/${automationId}/runs`;
    const first = await api.get<Page>(`${path}?limit=2`);
    const second = await api.get<Page>(`${path}?limit=2&cursor=${first.body.next_cursor}`);
    expect(first.body.data.map(({ id }) => id)).toEqual([three, four].toSorted().reverse());
    expect(first.body.has_more).toBe(true);
    expect(second).toEqual(
      success(200, {
        ...EMPTY_PAGE,
        data: [expect.objectContaining({ id: one, automation_id: automationId })],
      }),
    );
    const all = await api.get<Page>("/v1/runs");
    const other = await api.get<Page>(`/v1/automations/${otherId}/runs`);
    expect(other.body.data).toEqual(all.body.data.filter(({ id }) => id === two));
    const idle = await recordAutomation(workspaceId);
    expect(await api.get(`/v1/automations/${idle}/runs`)).toEqual(success(200, EMPTY_PAGE));
  });

  test("rejects cursors of GET /runs, of another automation's runs, and its own cursors elsewhere", async () => {
    const { api, automationId, otherId } = await openRuns();
    const cursorOf = async (path: string) =>
      (await api.get<Page>(`${path}?limit=1`)).body.next_cursor as string;
    const ofAll = await cursorOf("/v1/runs");
    const own = await cursorOf(`/v1/automations/${automationId}/runs`);
    const unreadable = invalid("cursor", "unreadable");
    for (const path of [
      `/v1/automations/${automationId}/runs?cursor=${ofAll}`,
      `/v1/automations/${otherId}/runs?cursor=${own}`,
      `/v1/runs?cursor=${own}`,
    ])
      expect(await api.get(path), path).toEqual(unreadable);
  });
});
