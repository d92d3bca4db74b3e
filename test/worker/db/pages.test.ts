import { env, exports } from "cloudflare:workers";
import { beforeAll, expect, test } from "vitest";
import { RECORDS_MAX } from "../../../src/contract/limits.ts";
import { openDatabase } from "../../../src/db/client.ts";
import type { Listing, PageRequest } from "../../../src/db/page.ts";
import { listAutomations } from "../../../src/records/automations.ts";
import { listLeads } from "../../../src/records/leads.ts";
import { listRuns, listRunsOfAutomation } from "../../../src/records/runs.ts";
import {
  automationReport,
  leadReport,
  openWorkspace,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const ROWS = 120;
const ALL = { crmSource: true };
const SOCIAL = { crmSource: false };

const { DB, rows } = meteredDatabase();
const db = openDatabase(DB);

let workspaceId: string;
let automationId: string;

/** Rows in groups of three with the same time, as imports create them. */
beforeAll(async () => {
  ({ workspaceId } = await openWorkspace());
  automationId = await recordAutomation(workspaceId, { status: "active" });
  // Afterwards, the isolate knows the workspace's data key: the first page that it reads needs a row more.
  const leads = Array.from({ length: ROWS }, (_, i) =>
    leadReport(String(i), { createdAt: new Date(Math.floor(i / 3)).toISOString() }),
  );
  for (let i = 0; i < ROWS; i += RECORDS_MAX)
    await exports.Platform.recordLeads({ workspaceId, leads: leads.slice(i, i + RECORDS_MAX) });
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})`;
  await env.DB.batch([
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

type List = (request: PageRequest) => Promise<Listing<{ id: string }> | null>;

test.each<[string, List, walks?: number]>([
  // With CRM automations served, the index of each kind is walked.
  ["leads", (request) => listLeads(db, env.ENCRYPTION_KEYS, workspaceId, request)],
  ["runs", (request) => listRuns(db, workspaceId, ALL, request), 2],
  ["social runs", (request) => listRuns(db, workspaceId, SOCIAL, request)],
  [
    "an automation's runs",
    (request) => listRunsOfAutomation(db, workspaceId, ALL, automationId, request),
  ],
  ["automations", (request) => listAutomations(db, workspaceId, ALL, request), 2],
  ["social automations", (request) => listAutomations(db, workspaceId, SOCIAL, request)],
])("a page of %s reads one row more than it shows, at any depth", async (_, read, walks = 1) => {
  for (const limit of [1, 7, 100]) {
    const seen: string[] = [];
    let after: PageRequest["after"] = null;
    do {
      rows.read = 0;
      const page = await read({ limit, after });
      seen.push(...(page?.items ?? []).map(({ id }) => id));
      if (page?.next) expect(rows.read).toBe(limit + walks);
      else expect(rows.read).toBeLessThanOrEqual(limit + walks);
      after = page?.next ?? null;
    } while (after);
    expect(seen).toHaveLength(ROWS);
    expect(new Set(seen).size).toBe(ROWS);
  }
});

/**
 * A workspace whose newest automations and runs are CRM ones, and some of each kind at the same
 * time.
 */
async function openMixed() {
  const { workspaceId } = await openWorkspace();
  const crm = await recordAutomation(workspaceId, { type: "crm_source", name: "Relance" });
  const social = await recordAutomation(workspaceId);
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})`;
  const insertRuns = (automationId: string, isCrm: number, firstAt: number) =>
    env.DB.prepare(
      `INSERT INTO runs (id, workspace_id, reference, automation_id, status, trigger_type, occurred_at, actions, crm)
      ${numbers} SELECT 'run_' || ?2 || i, ?1, i, ?2, 'success', 'comment', ?3 + i, '[]', ?4 FROM n`,
    ).bind(workspaceId, automationId, firstAt, isCrm);
  const insertAutomations = (type: string, firstAt: number) =>
    env.DB.prepare(
      `INSERT INTO automations (id, workspace_id, reference, type, provider, agent_id, agent_name, name, status, updated_at, created_at)
      ${numbers} SELECT 'aut_' || substr(?2, 2) || ?1 || i, ?1, i, ?2, 'x', 'agt_1', '', '', 'draft', 0, ?3 + i FROM n`,
    ).bind(workspaceId, type, firstAt);
  await env.DB.batch([
    insertRuns(social, 0, 0),
    insertRuns(crm, 1, ROWS / 2),
    insertAutomations("social_story", 0),
    insertAutomations("crm_source", ROWS / 2),
  ]);
  return { workspaceId, social, crm };
}

test("a page reads no more if CRM automations are not served, however many there are", async () => {
  const { workspaceId, social, crm } = await openMixed();
  const request = { limit: 25, after: null };
  const read = async (list: () => Promise<Listing<{ id: string }> | null>) => {
    rows.read = 0;
    const page = await list();
    return { shown: page?.items.length, read: rows.read };
  };
  for (const list of [listRuns, listAutomations])
    expect(await read(() => list(db, workspaceId, SOCIAL, request))).toEqual({
      shown: 25,
      read: 26,
    });
  const ofSocial = () => listRunsOfAutomation(db, workspaceId, SOCIAL, social, request);
  expect(await read(ofSocial)).toEqual({ shown: 25, read: 27 });
  const ofCrm = await read(() => listRunsOfAutomation(db, workspaceId, SOCIAL, crm, request));
  expect(ofCrm.shown).toBeUndefined();
  expect(ofCrm.read).toBeLessThanOrEqual(2);
});

test("a page of both kinds is sorted, complete, and reads at most one more row of each kind", async () => {
  const { workspaceId } = await openMixed();
  for (const [list, count] of [
    [listRuns, 2 * ROWS],
    [listAutomations, 2 * ROWS + 2],
  ] as const) {
    const seen: string[] = [];
    let after: PageRequest["after"] = null;
    let last = Number.POSITIVE_INFINITY;
    do {
      rows.read = 0;
      // An odd number: some pages end between two of the same time.
      const page: Listing<{ id: string }> = await list(db, workspaceId, ALL, { limit: 99, after });
      seen.push(...page.items.map(({ id }) => id));
      expect(rows.read).toBeLessThanOrEqual(101);
      after = page.next;
      if (after) expect(after.at).toBeLessThanOrEqual(last);
      last = after?.at ?? last;
    } while (after);
    expect(seen).toHaveLength(count);
    expect(new Set(seen).size).toBe(count);
  }
});

test("a run is written with one row per index and one in the table", async () => {
  const indexes = env.DB.prepare(
    "SELECT count(*) AS n FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'runs' AND name NOT LIKE '%_crm'",
  );
  expect(await indexes.first("n")).toBe(4);
});

test("runs follow their automation when a report changes its kind, unless the report is too old", async () => {
  const { workspaceId } = await openWorkspace();
  const report = (type: "crm_source" | "lead_ads", updatedAt: string) =>
    exports.Platform.recordAutomations({
      workspaceId,
      automations: [automationReport("1", { type, name: "Relance", updatedAt })],
    });
  const { ids } = await report("crm_source", "2026-01-02T00:00:00Z");
  const runs = [runReport("1", ids[0] as string)];
  await exports.Platform.recordRuns({ workspaceId, runs });
  const shown = async () =>
    (await listRuns(db, workspaceId, SOCIAL, { limit: 25, after: null })).items.length;
  expect(await shown()).toBe(0);
  for (const [type, day, count] of [
    ["lead_ads", 1, 0],
    ["lead_ads", 3, 1],
    ["crm_source", 4, 0],
  ] as const) {
    await report(type, `2026-01-0${day}T00:00:00Z`);
    expect(await shown()).toBe(count);
  }
});
