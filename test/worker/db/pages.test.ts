import { env, exports } from "cloudflare:workers";
import { beforeAll, expect, test } from "vitest";
import { openDatabase } from "../../../src/db/client.ts";
import type { Page, PageRequest } from "../../../src/db/page.ts";
import { listAutomations } from "../../../src/records/automations.ts";
import { listLeads } from "../../../src/records/leads.ts";
import { listRuns, listRunsOfAutomation } from "../../../src/records/runs.ts";
import { leadReport, openWorkspace, recordAutomation } from "../../support/api.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { insertAutomations, insertRuns } from "../../support/rows.ts";

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
  const numbers = Array.from({ length: ROWS }, (_, i) => i + 1);
  for (const [automationId, firstAt] of [
    [social, 0],
    [crm, ROWS / 6],
  ] as const)
    await insertRuns(
      numbers.map((i) => ({
        id: `run_${automationId}${i}`,
        workspaceId,
        automationId,
        occurredAt: firstAt + Math.floor(i / 3),
      })),
    );
  // One less than of runs: one was recorded.
  for (const [type, firstAt] of [
    ["social_story", 0],
    ["crm_source", ROWS / 6],
  ] as const)
    await insertAutomations(
      numbers.slice(0, -1).map((i) => ({
        id: `aut_${type}${i}`,
        workspaceId,
        type,
        createdAt: firstAt + Math.floor(i / 3),
      })),
    );
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
