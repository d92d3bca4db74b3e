import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { ExportItem } from "../../src/contract/export.ts";
import { sweep } from "../../src/doors/sweep.ts";
import {
  automationReport,
  leadReport,
  openWorkspace,
  recordAutomation,
  runReport,
} from "../support/api.ts";
import {
  answered,
  consumeFor,
  isolated,
  receivedBy,
  subscriberUrl,
} from "../support/deliveries.ts";
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
    await cleanUp();
    expect(Object.keys(await rowsIn(workspaceId))).toEqual([to]);
    // The sweep has gone on with the automation that was removed.
    const isKept = (item: string) => !item.includes('"reference":"c"');
    expect(comparable(await exported(workspaceId)).filter(isKept)).toEqual(before.filter(isKept));
  });

  test("is noticed by nobody who reads, writes, pauses or subscribes meanwhile", async () => {
    const { workspaceId, api } = await openWorkspace();
    const url = subscriberUrl();
    const events = ["lead.created", "automation.status_changed"];
    await api.post("/v1/webhooks", { url, events });
    const automationId = await recordAutomation(workspaceId);
    const recorded: string[] = [];
    const slowest = { read: 0, write: 0 };
    let isOver = false;
    const again = async (kind: keyof typeof slowest, act: () => Promise<void>) => {
      while (!isOver) {
        const startedAt = performance.now();
        await act();
        slowest[kind] = Math.max(slowest[kind], performance.now() - startedAt);
      }
    };
    let changes = 0;
    const work = Promise.all([
      ...[1, 2, 3].map((writer) => {
        let n = 0;
        return again("write", async () => {
          const leads = [leadReport(`${writer}-${n}`), leadReport(`${writer}-${n + 1}`)];
          n += 2;
          recorded.push(...(await Platform.recordLeads({ workspaceId, leads })).ids);
        });
      }),
      again("write", async () => {
        for (const status of ["paused", "active"]) {
          const answer = await api.patch(`/v1/automations/${automationId}`, { status });
          expect(answer).toMatchObject({ status: 200, body: { status } });
          changes++;
        }
      }),
      again("write", async () => {
        const body = { url: subscriberUrl(), events: ["run.completed"] };
        const made = await api.post<{ id: string }>("/v1/webhooks", body);
        expect(made.status).toBe(201);
        expect((await api.delete(`/v1/webhooks/${made.body.id}`)).status).toBe(204);
      }),
      again("read", async () => {
        const last = recorded.at(-1);
        const { status, body } = await api.get<Page>("/v1/leads?limit=100");
        expect(status).toBe(200);
        // Whatever was recorded before it was asked for.
        if (last) expect(body.data.map(({ id }) => id)).toContain(last);
      }),
      again("read", async () => {
        const ledger = await Platform.ledger({ workspaceId });
        expect(ledger.addsUp).toBe(true);
      }),
    ]);
    for (const database of ["DB_3", "DB", "DB_2", "DB_3"]) {
      await moved(workspaceId, database);
      await new Promise((resolve) => setTimeout(resolve, 300));
      await cleanUp();
    }
    isOver = true;
    await work;
    expect(slowest.read).toBeLessThan(2_000);
    // A cursor from before the moves would walk them as well: each row once.
    const walked: string[] = [];
    let cursor = "";
    do {
      const { body } = await api.get<Page>(`/v1/leads?limit=100${cursor}`);
      walked.push(...body.data.map(({ id }) => id));
      cursor = body.next_cursor === null ? "" : `&cursor=${body.next_cursor}`;
    } while (cursor !== "");
    expect(walked.sort()).toEqual([...recorded].sort());
    await expect
      .poll(() => Platform.ledger({ workspaceId }), { timeout: 20_000 })
      .toMatchObject({ pending: 0, created: recorded.length + changes, addsUp: true });
    const received = new Set((await receivedBy({ url })).map(({ body }) => JSON.parse(body).id));
    expect(received.size).toBe(recorded.length + changes);
    expect(Object.keys(await rowsIn(workspaceId))).toEqual(["DB_3"]);
  });
});

interface Page {
  data: { id: string }[];
  next_cursor: string | null;
}

/** Deletes what workspaces have left behind, as if reads that began before were over. */
async function cleanUp(): Promise<void> {
  for (const name of ["DB", "DB_2", "DB_3"])
    await databases[name]?.prepare("UPDATE moves SET since = 0").run();
  await sweep(isolated().env, Date.now());
}
