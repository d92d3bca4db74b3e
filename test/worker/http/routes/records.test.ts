import { describe, expect, test } from "vitest";
import type { PageBody } from "../../../../src/http/paging.ts";
import {
  EMPTY_PAGE,
  invalid,
  leadReport,
  openWorkspace,
  Platform,
  recordAutomation,
  runReport,
  success,
} from "../../../support/api.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { useThreeDatabases } from "../../../support/placement.ts";
import { damageLead, fillLeads } from "../../../support/record.ts";

useThreeDatabases();

// test/worker/http/document/examples.test.ts and test/worker/platform check what each field shows, and that an agent has
// one id everywhere.

const lines = keepLog();

type Page = PageBody<{ id: string; agent_id: string }>;

test("GET /automations returns them as by their ids, newest first by creation, whatever changed since", async () => {
  const { workspaceId, api } = await openWorkspace();
  const crm = { type: "crm_source", provider: "HubSpot 🧡", name: "Relance des devis" } as const;
  const paths: string[] = [];
  for (const report of [crm, { status: "draft" }, { status: "error" }] as const) {
    paths.unshift(`/v1/automations/${await recordAutomation(workspaceId, report)}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  expect((await api.patch(paths[2] as string, { status: "paused" })).status).toBe(200);
  const data = await Promise.all(paths.map(async (path) => (await api.get(path)).body));
  const paused = { ...crm, status: "paused" };
  expect(data).toMatchObject([{ status: "error" }, { status: "draft" }, paused]);
  expect(await api.get("/v1/automations")).toEqual(success(200, { ...EMPTY_PAGE, data }));
});

test("GET /leads leaves out a lead that cannot be decrypted", async () => {
  const { workspaceId, api } = await openWorkspace();
  const leads = ["1", "2", "3"].map((day) =>
    leadReport(day, { createdAt: `2026-03-0${day}T00:00:00Z` }),
  );
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  await damageLead(ids[2]);
  const first = await api.get<Page>("/v1/leads?limit=1");
  expect(first.body.data.map(({ id }) => id)).toEqual([ids[1]]);
  const { body } = await api.get<Page>(`/v1/leads?cursor=${first.body.next_cursor}`);
  expect(body.data.map(({ id }) => id)).toEqual([ids[0]]);
  expect(lines.join()).toContain(`"lead_decrypt_failed","leadId":"${ids[2]}"`);
});

test("GET /leads reads at most ten pages that only have leads that cannot be decrypted", async () => {
  const { workspaceId, api } = await openWorkspace();
  const { ids } = await Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
  await fillLeads(workspaceId, 20);
  let query = "limit=1";
  for (const shown of [[], [], ids]) {
    const { body } = await api.get<Page>(`/v1/leads?${query}`);
    expect(body.data.map(({ id }) => id)).toEqual(shown);
    expect(body.has_more).toBe(shown.length === 0);
    query = `limit=1&cursor=${body.next_cursor}`;
  }
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
    const { ids } = await Platform.recordRuns({ workspaceId, runs });
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
    const own = await cursorOf(path);
    for (const each of [
      `${path}?cursor=${await cursorOf("/v1/runs")}`,
      `${otherPath}?cursor=${own}`,
      `/v1/runs?cursor=${own}`,
    ])
      expect(await api.get(each), each).toEqual(invalid("cursor", "unreadable"));
  });
});
