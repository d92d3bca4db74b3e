import { env, exports } from "cloudflare:workers";
import { beforeAll, expect, test } from "vitest";
import { openDatabase } from "../../../src/db/client.ts";
import type { Page, PageRequest } from "../../../src/db/page.ts";
import { listAutomations } from "../../../src/records/automations.ts";
import { listLeads } from "../../../src/records/leads.ts";
import { listRuns, listRunsOfAutomation } from "../../../src/records/runs.ts";
import { leadReport, openWorkspace, recordAutomation } from "../../support/api.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

/** How many there are of each kind: leads, social and CRM runs, social and CRM automations. */
const ROWS = 120;
/** Values of `servesCrmSource`. */
const ALL = true;
const SOCIAL = false;

const { DB, rows } = meteredDatabase();
const db = openDatabase(DB);

let workspaceId: string;
let social: string;
let crm: string;

/** Rows in groups of three with the same time, as imports create them; the newest are CRM ones. */
beforeAll(async () => {
  ({ workspaceId } = await openWorkspace());
  crm = await recordAutomation(workspaceId, { type: "crm_source", name: "Relance" });
  social = await recordAutomation(workspaceId);
  // Afterwards, the isolate knows the workspace's data key: the first page that it reads needs a row more.
  const leads = Array.from({ length: ROWS }, (_, i) =>
    leadReport(String(i), { createdAt: new Date(Math.floor(i / 3)).toISOString() }),
  );
  for (const part of [leads.slice(0, 100), leads.slice(100)])
    await exports.Platform.recordLeads({ workspaceId, leads: part });
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${ROWS})`;
  const insertRuns = (automationId: string, firstAt: number) =>
    env.DB.prepare(
      `INSERT INTO runs (id, workspace_id, reference, automation_id, status, trigger_type, occurred_at, actions)
      ${numbers} SELECT 'run_' || ?2 || i, ?1, i, ?2, 'success', 'comment', ?3 + i / 3, '[]' FROM n`,
    ).bind(workspaceId, automationId, firstAt);
  // One less than of runs: one was recorded.
  const insertAutomations = (type: string, firstAt: number) =>
    env.DB.prepare(
      `INSERT INTO automations (id, workspace_id, reference, type, provider, agent_id, agent_name, name, status, updated_at, created_at)
      ${numbers} SELECT 'aut_' || substr(?2, 2) || i, ?1, i, ?2, 'x', 'agt_1', '', '', 'draft', 0, ?3 + i / 3 FROM n WHERE i < ${ROWS}`,
    ).bind(workspaceId, type, firstAt);
  await env.DB.batch([
    insertRuns(social, 0),
    insertRuns(crm, ROWS / 6),
    insertAutomations("social_story", 0),
    insertAutomations("crm_source", ROWS / 6),
  ]);
});

type List = (request: PageRequest) => Promise<Page<{ id: string }> | null>;

/** Each list, how many rows it has, and whether others lie between them, which are not shown. */
const LISTS: [string, List, total: number, "hides some"?][] = [
  ["leads", (request) => listLeads(db, env.ENCRYPTION_KEYS, workspaceId, request), ROWS],
  ["runs", (request) => listRuns(db, workspaceId, ALL, request), 2 * ROWS],
  ["social runs", (request) => listRuns(db, workspaceId, SOCIAL, request), ROWS, "hides some"],
  [
    "an automation's runs",
    (request) => listRunsOfAutomation(db, workspaceId, ALL, social, request),
    ROWS,
  ],
  ["automations", (request) => listAutomations(db, workspaceId, ALL, request), 2 * ROWS],
  [
    "social automations",
    (request) => listAutomations(db, workspaceId, SOCIAL, request),
    ...([ROWS, "hides some"] as const),
  ],
];

test.each(LISTS)(
  "the pages of %s are sorted and complete, and read a row more than shown",
  async (...[, read, total, hides]) => {
    for (const limit of [1, 7, 99]) {
      const seen: string[] = [];
      let after: PageRequest["after"] = null;
      do {
        Object.assign(rows, { read: 0, queries: 0 });
        const page = await read({ limit, after });
        seen.push(...(page?.items ?? []).map(({ id }) => id));
        if (!hides) {
          expect(rows.queries).toBe(1);
          if (page?.next) expect(rows.read).toBeGreaterThan(limit);
          // At the end, SQLite may look at the first row that belongs to something else.
          const [ownRow, positionRow] = [1, 1];
          const most = limit + 1 + ownRow + positionRow + (page?.next ? 0 : 1);
          expect(rows.read).toBeLessThanOrEqual(most);
        } else expect(rows.queries).toBeLessThanOrEqual(3);
        if (page?.next && after) expect(page.next.at).toBeLessThanOrEqual(after.at);
        after = page?.next ?? null;
      } while (after);
      expect(seen).toHaveLength(total);
      expect(new Set(seen).size).toBe(total);
    }
  },
);

test("a page of one automation's runs reads its row first, if CRM automations are not served", async () => {
  const read = async (automationId: string) => {
    rows.read = 0;
    const request = { limit: 25, after: null };
    const page = await listRunsOfAutomation(db, workspaceId, SOCIAL, automationId, request);
    return [page?.items.length, rows.read];
  };
  expect(await read(social)).toEqual([25, 28]);
  expect(await read(crm)).toEqual([undefined, expect.toSatisfy((read: number) => read <= 2)]);
});
