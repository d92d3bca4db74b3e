import type { Runtime } from "../scripts/shared/runtime.ts";
import { encodeCursor } from "../src/contract/cursor.ts";
import { openWorkspace } from "./isolation.ts";
import { median } from "./statistics.ts";
import type { Meters } from "./worker.ts";

const LIMIT = 25;
const ROWS_AT_ONCE = 50_000;

/** The cost of one page of a large table. */
export interface PageCost {
  page: number;
  rowsRead: number;
  ms: number;
}

/**
 * Pages of 25 leads of a workspace with `rows` leads: what D1 reads for each, and how long it
 * takes.
 *
 * @param runtime runs the bundle of `bench/worker.ts`.
 */
export async function measurePages(
  runtime: Runtime,
  rows: number,
  samples: number,
): Promise<PageCost[]> {
  const { workspaceId, apiKey } = await openWorkspace(runtime, []);
  const numbers = [1, 100, Math.floor(rows / LIMIT / 4)];
  await fill(runtime, workspaceId, rows, [
    ...new Set(numbers.flatMap((page) => numbersOn(rows, page))),
  ]);
  const pages = numbers.map((page) => ({ page, cursor: cursorOf(rows, page) }));
  const costs = pages.map(({ page }) => ({ page, rowsRead: 0, times: [] as number[] }));
  for (let i = 0; i <= samples; i++)
    for (const [at, { cursor }] of pages.entries()) {
      const cost = costs[at];
      if (!cost) continue;
      const { rowsRead, ms } = await readPage(runtime, apiKey, cursor);
      // The first round warms up.
      if (i === 0) continue;
      cost.rowsRead = Math.max(cost.rowsRead, rowsRead);
      cost.times.push(ms);
    }
  return costs.map(({ page, rowsRead, times }) => ({ page, rowsRead, ms: median(times) }));
}

/** Leads, number n created at n. Those that no page shows are fillers, which nobody can decrypt. */
async function fill(
  { env: { DB, PLATFORM } }: Runtime,
  workspaceId: string,
  rows: number,
  shown: number[],
): Promise<void> {
  for (let from = 0; from < rows; from += ROWS_AT_ONCE)
    await DB.prepare(
      `INSERT INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id)
      WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      SELECT 'lea_' || i, ?, i, 'crm', 'agt_1', randomblob(120), i, '' FROM n
      WHERE i NOT IN (SELECT value FROM json_each(?))`,
    )
      .bind(from + 1, Math.min(rows, from + ROWS_AT_ONCE), workspaceId, JSON.stringify(shown))
      .run();
  const leads = shown.map((n) => ({
    reference: String(n),
    source: "crm" as const,
    agent: { reference: "agent", name: "Agent" },
    name: "Camille Durand",
    email: "camille.durand@example.com",
    customFields: { budget: "250000" },
    createdAt: new Date(n).toISOString(),
  }));
  await PLATFORM.recordLeads({ workspaceId, leads });
}

/** The numbers of the leads on a page, and of the one behind it. */
function numbersOn(rows: number, page: number): number[] {
  return Array.from({ length: LIMIT + 1 }, (_, i) => rows - (page - 1) * LIMIT - i);
}

/** The cursor of a page. */
function cursorOf(rows: number, page: number): string {
  if (page === 1) return "";
  return encodeCursor("leads", { at: rows - (page - 1) * LIMIT + 1, id: "lea_0" });
}

async function readPage(runtime: Runtime, apiKey: string, cursor: string) {
  await fetch(new URL("/bench/reset", runtime.url));
  const startedAt = performance.now();
  const answer = await fetch(new URL(`/v1/leads?limit=${LIMIT}&cursor=${cursor}`, runtime.url), {
    headers: { Authorization: `Bearer ${apiKey}` },
  });
  const { data } = (await answer.json()) as { data: unknown[] };
  const ms = performance.now() - startedAt;
  if (data.length !== LIMIT) throw new Error(`a page held ${data.length} leads`);
  const meters = (await (await fetch(new URL("/bench/meters", runtime.url))).json()) as Meters;
  return { rowsRead: meters.rowsRead, ms };
}
