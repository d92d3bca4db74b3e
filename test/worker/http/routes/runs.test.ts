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

describe("GET /runs", () => {
  test("returns runs with exactly the fields of the contract", async () => {
    const { workspaceId, api } = await openWorkspace();
    const automationId = await recordAutomation(workspaceId);
    const leadId = await recordLead(workspaceId);
    const actions = [{ type: "send_message", status: "success" }, { type: "tag" }, {}];
    const full = { status: "partial", triggerType: "story_reply", actions, leadId } as const;
    const { ids } = await exports.Platform.recordRuns({
      workspaceId,
      runs: [
        runReport("1", automationId, { ...full, occurredAt: "2026-03-14T09:26:53.589Z" }),
        runReport("2", automationId, { occurredAt: "2026-03-13T00:00:00Z" }),
      ],
    });
    for (const id of ids) expect(id).toMatch(/^run_[0-9a-z]+$/);
    const data = [
      {
        ...{ id: ids[0], automation_id: automationId, status: "partial", actions, lead_id: leadId },
        ...{ trigger_type: "story_reply", occurred_at: "2026-03-14T09:26:53.589Z" },
      },
      {
        ...{ id: ids[1], automation_id: automationId, status: "success", actions: [] },
        ...{ trigger_type: "comment", occurred_at: "2026-03-13T00:00:00.000Z", lead_id: null },
      },
    ];
    expect(await api.get("/v1/runs")).toEqual(success(200, { ...EMPTY_PAGE, data }));
  });
});

describe("GET /automations/{id}/runs", () => {
  /** A workspace with two automations; the first has three runs, the second one. */
  async function openRuns() {
    const { workspaceId, api } = await openWorkspace();
    const own = await recordAutomation(workspaceId);
    const other = await recordAutomation(workspaceId);
    const runs = [own, other, own, own].map((automationId, i) =>
      runReport(String(i), automationId, {
        occurredAt: `2026-01-0${Math.min(i, 2) + 1}T00:00:00Z`,
      }),
    );
    const { ids } = await exports.Platform.recordRuns({ workspaceId, runs });
    const pathOf = (id: string) => `/v1/automations/${id}/runs`;
    return { workspaceId, api, ids, pathOf, path: pathOf(own), otherPath: pathOf(other) };
  }

  test("returns the runs of this automation only, as GET /runs does, newest first, page by page", async () => {
    const { workspaceId, api, ids, pathOf, path, otherPath } = await openRuns();
    const all = (await api.get<Page>("/v1/runs")).body.data;
    const shown = (...wanted: unknown[]) => all.filter(({ id }) => wanted.includes(id));
    const [oldest, others, ...newest] = ids;
    const first = await api.get<Page>(`${path}?limit=2`);
    const { next_cursor } = first.body;
    expect(first).toEqual(
      success(200, { data: shown(...newest), has_more: true, next_cursor: expect.any(String) }),
    );
    expect(all.map(({ id }) => id)).toEqual([...newest.toSorted().reverse(), others, oldest]);
    for (const [each, data] of [
      [`${path}?limit=2&cursor=${next_cursor}`, shown(oldest)],
      [otherPath, shown(others)],
      [pathOf(await recordAutomation(workspaceId)), []],
    ] as const)
      expect(await api.get(each)).toEqual(success(200, { ...EMPTY_PAGE, data }));
  });

  test("rejects cursors of GET /runs, of another automation's runs, and its own cursors elsewhere", async () => {
    const { api, path, otherPath } = await openRuns();
    const cursorOf = async (list: string) =>
      (await api.get<Page>(`${list}?limit=1`)).body.next_cursor;
    const [ofAll, own] = [await cursorOf("/v1/runs"), await cursorOf(path)];
    for (const each of [
      `${path}?cursor=${ofAll}`,
      `${otherPath}?cursor=${own}`,
      `/v1/runs?cursor=${own}`,
    ])
      expect(await api.get(each), each).toEqual(invalid("cursor", "unreadable"));
  });
});
