import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { ExportItem } from "../../src/contract/export.ts";
import { sweep } from "../../src/doors/sweep.ts";
import { automationReport, leadReport, openWorkspace, runReport } from "../support/api.ts";
import { answered, consumeFor, isolated, subscriberUrl } from "../support/deliveries.ts";
import { HOME_DB } from "../support/home.ts";

const { Platform } = exports;
const databases = env as unknown as Record<string, D1Database>;
const TABLES = ["automations", "leads", "runs", "subscriptions", "events", "deliveries", "notices"];

/** How many rows of the workspace each database has, by its name. */
async function rowsIn(workspaceId: string): Promise<Record<string, number>> {
  const counts = ["DB", "DB_2", "DB_3"].map(async (name) => {
    const db = databases[name] as D1Database;
    const results = await db.batch<{ n: number }>(
      TABLES.map((table) =>
        db.prepare(`SELECT count(*) AS n FROM ${table} WHERE workspace_id = ?`).bind(workspaceId),
      ),
    );
    return [name, results.reduce((sum, { results: [row] }) => sum + (row?.n ?? 0), 0)] as const;
  });
  return Object.fromEntries((await Promise.all(counts)).filter(([, n]) => n > 0));
}

/** All that is kept of a workspace. */
async function exported(workspaceId: string): Promise<ExportItem[]> {
  const items: ExportItem[] = [];
  let cursor: string | null = null;
  do {
    const page: { items: ExportItem[]; nextCursor: string | null } = await Platform.exportWorkspace(
      { workspaceId, cursor },
    );
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor !== null);
  return items;
}

/** A workspace with something of everything: runs, subscriptions, deliveries in all states. */
async function openFull() {
  const workspace = await openWorkspace();
  const { workspaceId, api } = workspace;
  const url = subscriberUrl();
  const events = ["lead.created", "run.completed", "automation.status_changed"];
  const { body } = await api.post<{ id: string }>("/v1/webhooks", { url, events });
  const { ids } = await Platform.recordAutomations({
    workspaceId,
    automations: [automationReport("a"), automationReport("b"), automationReport("c")],
  });
  const [first = "", , removed = ""] = ids;
  await Platform.removeAutomations({ workspaceId, ids: [removed] });
  const leads = Array.from({ length: 30 }, (_, i) =>
    leadReport(`lead-${i}`, { name: `Zoë “${i}” 🌻`, customFields: { i, text: 'é\n"\\' } }),
  );
  const recorded = await Platform.recordLeads({ workspaceId, leads });
  const runs = recorded.ids.map((leadId, i) => runReport(`run-${i}`, first, { leadId }));
  await Platform.recordRuns({ workspaceId, runs });
  // Some are delivered, and one attempt has failed.
  let posts = 0;
  await consumeFor([body.id], isolated().env, async () => answered(++posts === 20 ? 500 : 200));
  // And one waits.
  await HOME_DB.prepare("UPDATE subscriptions SET next_at = ? WHERE id = ?")
    .bind(Date.now() + 3_600_000, body.id)
    .run();
  await Platform.recordLeads({ workspaceId, leads: [leadReport("last")] });
  return { ...workspace, webhookId: body.id, automationId: first };
}

/** What is exported, apart from who holds what. */
function comparable(items: ExportItem[]) {
  return items
    .map(({ heldBy, heldUntil, heldThrough, database, id, ...item }) => ({
      ...item,
      id: item.kind === "notice" ? null : id,
    }))
    .map((item) => JSON.stringify(item))
    .sort();
}

async function moved(workspaceId: string, database: string): Promise<void> {
  while (!(await Platform.moveWorkspace({ workspaceId, database })).done);
}

describe("moveWorkspace", () => {
  test.each([
    ["DB_2", "DB_3"],
    ["DB_2", "DB"],
  ])("from %s to %s takes all of it along, and its keys work as before", async (from, to) => {
    const { workspaceId, api } = await openFull();
    expect(Object.keys(await rowsIn(workspaceId))).toEqual([from]);
    const before = comparable(await exported(workspaceId));
    const list = await api.get("/v1/leads?limit=100");
    await moved(workspaceId, to);
    expect(comparable(await exported(workspaceId))).toEqual(before);
    expect((await api.get("/v1/leads?limit=100")).body).toEqual(list.body);
    // What is left behind goes once reads that began before are over.
    expect(Object.keys(await rowsIn(workspaceId)).sort()).toEqual([from, to].sort());
    for (const name of ["DB", "DB_2", "DB_3"])
      await databases[name]?.prepare("UPDATE moves SET since = 0").run();
    await sweep(isolated().env, Date.now());
    expect(Object.keys(await rowsIn(workspaceId))).toEqual([to]);
    expect(comparable(await exported(workspaceId))).toEqual(before);
  });
});
