import { env } from "cloudflare:workers";
import { beforeAll, expect, test } from "vitest";
import { decodeCursor } from "../../src/contract/cursor.ts";
import type { Page } from "../../src/contract/resources.ts";
import { openDatabase } from "../../src/db/client.ts";
import { listAutomations } from "../../src/model/automations.ts";
import { listLeads } from "../../src/model/leads.ts";
import type { PageRequest } from "../../src/model/page.ts";
import { listRuns, listRunsOfAutomation, runsListOf } from "../../src/model/runs.ts";
import { openWorkspace, recordAutomation } from "../support/api.ts";

const ROWS = 300;
const ALL = { crmSource: true };

let rowsRead = 0;
const db = openDatabase({
  prepare: (query: string) => metered(env.DB.prepare(query)),
} as D1Database);

function metered(statement: D1PreparedStatement): D1PreparedStatement {
  return {
    bind: (...values: unknown[]) => metered(statement.bind(...values)),
    all: async () => {
      const result = await statement.all();
      rowsRead += result.meta.rows_read;
      return result;
    },
  } as unknown as D1PreparedStatement;
}

let workspaceId: string;
let automationId: string;

/** Rows of three at a time, as imports make them. */
beforeAll(async () => {
  ({ workspaceId } = await openWorkspace());
  automationId = await recordAutomation(workspaceId, { status: "active" });
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})`;
  await env.DB.batch([
    env.DB.prepare(
      `INSERT INTO leads (id, workspace_id, reference, source, agent_id, custom_fields, created_at)
      ${numbers} SELECT 'lea_' || i, ?, i, 'crm', 'agt_1', '{}', i / 3 FROM n`,
    ).bind(workspaceId),
    env.DB.prepare(
      `INSERT INTO runs (id, workspace_id, reference, automation_id, status, trigger_type, occurred_at, actions)
      ${numbers} SELECT 'run_' || i, ?, i, ?, 'success', 'comment', i / 3, '[]' FROM n`,
    ).bind(workspaceId, automationId),
    env.DB.prepare(
      `INSERT INTO automations (id, workspace_id, reference, type, provider, agent_id, agent_name, name, status, updated_at, created_at)
      ${numbers} SELECT 'aut_' || i, ?, i, 'social_story', 'facebook', 'agt_1', '', '', 'draft', 0, i / 3 FROM n WHERE i < ${ROWS}`,
    ).bind(workspaceId),
  ]);
});

type List = (request: PageRequest) => Promise<Page<{ id: string }> | null>;

test.each<[string, () => string, List]>([
  ["leads", () => "leads", (request) => listLeads(db, workspaceId, request)],
  ["runs", () => "runs", (request) => listRuns(db, workspaceId, ALL, request)],
  [
    "an automation's runs",
    () => runsListOf(automationId),
    (request) => listRunsOfAutomation(db, workspaceId, ALL, automationId, request),
  ],
  ["automations", () => "automations", (request) => listAutomations(db, workspaceId, ALL, request)],
])("a page of %s reads one row more than it shows, at any depth", async (_, list, read) => {
  for (const limit of [1, 7, 100]) {
    const seen: string[] = [];
    let after: PageRequest["after"] = null;
    do {
      rowsRead = 0;
      const page = await read({ limit, after });
      seen.push(...(page?.data ?? []).map(({ id }) => id));
      if (page?.has_more) expect(rowsRead).toBe(limit + 1);
      else expect(rowsRead).toBeLessThanOrEqual(limit + 1);
      after = page?.next_cursor ? decodeCursor(list(), page.next_cursor) : null;
    } while (after);
    expect(seen).toHaveLength(ROWS);
    expect(new Set(seen).size).toBe(ROWS);
  }
});
