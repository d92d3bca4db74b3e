import { env } from "cloudflare:workers";
import { beforeAll, expect, test } from "vitest";
import { connect } from "../../../src/db/client.ts";
import type { Page, PageRequest } from "../../../src/db/page.ts";
import { listAutomations } from "../../../src/records/automations.ts";
import { listLeads } from "../../../src/records/leads.ts";
import { listRuns, listRunsOfAutomation } from "../../../src/records/runs.ts";
import { leadReport, openWorkspace, Platform, recordAutomation } from "../../support/api.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { insertAutomations, insertRuns } from "../../support/rows.ts";

/** How many there are of each kind: leads, runs of each automation, automations, and removed ones. */
const ROWS = 120;

const { DB, rows } = meteredDatabase();
const db = connect(DB);

let workspaceId: string;
let first: string;
let second: string;

/** Rows in groups of three with the same time, as imports create them. Removed automations lie between the others. */
beforeAll(async () => {
  ({ workspaceId } = await openWorkspace());
  second = await recordAutomation(workspaceId);
  first = await recordAutomation(workspaceId);
  // Afterwards, the isolate knows the workspace's data key: the first page that it reads needs a row more.
  const leads = Array.from({ length: ROWS }, (_, i) =>
    leadReport(String(i), { createdAt: new Date(Math.floor(i / 3)).toISOString() }),
  );
  for (const part of [leads.slice(0, 100), leads.slice(100)])
    await Platform.recordLeads({ workspaceId, leads: part });
  const numbers = Array.from({ length: ROWS }, (_, i) => i + 1);
  for (const [automationId, firstAt] of [
    [first, 0],
    [second, ROWS / 6],
  ] as const)
    await insertRuns(
      numbers.map((i) => ({
        id: `run_${automationId}${i}`,
        workspaceId,
        automationId,
        occurredAt: firstAt + Math.floor(i / 3),
      })),
    );
  for (const [name, removedAt] of [
    ["shown", null],
    ["removed", 1],
  ] as const)
    await insertAutomations(
      numbers.map((i) => ({
        id: `aut_${name}${i}`,
        workspaceId,
        createdAt: Math.floor(i / 3),
        removedAt,
      })),
    );
});

type List = (request: PageRequest) => Promise<Page<{ id: string }> | null>;

/** Each list, and how many rows it has. */
const LISTS: [string, List, total: number][] = [
  ["leads", (request) => listLeads(db, env.ENCRYPTION_KEYS, workspaceId, request), ROWS],
  ["runs", (request) => listRuns(db, workspaceId, request), 2 * ROWS],
  [
    "an automation's runs",
    (request) => listRunsOfAutomation(db, workspaceId, first, request),
    ROWS,
  ],
  ["automations", (request) => listAutomations(db, workspaceId, request), ROWS + 2],
];

test.each(LISTS)(
  "the pages of %s are sorted and complete, and read a row more than shown",
  async (...[, read, total]) => {
    for (const [limit, readsPerRow] of [
      [7, 1],
      [32, 1],
      // The size of a larger page is bounded, which reads each row up to four times.
      [99, 4],
    ] as const) {
      const seen: string[] = [];
      let after: PageRequest["after"] = null;
      do {
        Object.assign(rows, { read: 0, queries: 0 });
        const page = await read({ limit, after });
        seen.push(...(page?.items ?? []).map(({ id }) => id));
        expect(rows.queries).toBe(1);
        if (page?.next) expect(rows.read).toBeGreaterThan(limit);
        // At the end, SQLite may look at the first row that belongs to something else.
        const [ownRow, positionRow] = [1, 1];
        const most = readsPerRow * (limit + 1) + ownRow + positionRow + (page?.next ? 0 : 1);
        expect(rows.read).toBeLessThanOrEqual(most);
        if (page?.next && after) expect(page.next.at).toBeLessThanOrEqual(after.at);
        after = page?.next ?? null;
      } while (after);
      expect(seen).toHaveLength(total);
      expect(new Set(seen).size).toBe(total);
    }
  },
);
