import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { LARGE_BYTES } from "../../../src/db/schema.ts";
import type { Lead } from "../../../src/records/leads.ts";
import type { ExportItem } from "../../../src/workspaces/export-item.ts";
import { leadReport, openWorkspace, recordAutomation, runReport } from "../../support/api.ts";
import { consumeFor, isolated, receivedBy, subscribe } from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { record } from "../../support/record.ts";

const { Platform } = exports;

const TEXT = 'é"'.repeat(10_000);
const ACTIONS = Array.from({ length: 100 }, () => ({ type: "é".repeat(200), status: "done" }));

/** A workspace with a large lead and a large run, both of which were posted to a subscriber. */
async function openWithLarge() {
  const workspace = await openWorkspace();
  const { workspaceId } = workspace;
  const { id, url } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  const leads = [leadReport("large", { customFields: { text: TEXT } }), leadReport("small")];
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  const automationId = await recordAutomation(workspaceId);
  const runs = [runReport("large", automationId, { actions: ACTIONS, leadId: ids[0] })];
  await Platform.recordRuns({ workspaceId, runs });
  await consumeFor([id], isolated().env);
  await expect.poll(() => receivedBy({ url }), { timeout: 5_000 }).toHaveLength(3);
  return { ...workspace, ids, webhookId: id, received: await receivedBy({ url }) };
}

/** The rows of both tables of large parts that belong to a workspace's leads and events. */
async function largeRows(workspaceId: string, leadIds: string[]): Promise<number[]> {
  const counts = WORKSPACE_DB.prepare(
    `SELECT (SELECT count(*) FROM large_bodies WHERE workspace_id = ?1) AS bodies,
      (SELECT count(*) FROM large_leads WHERE lead_id IN (SELECT value FROM json_each(?2))) AS leads`,
  );
  return Object.values(
    (await counts.bind(workspaceId, JSON.stringify(leadIds)).first<Record<string, number>>()) ?? {},
  );
}

/** The custom fields that the API shows of each lead. */
async function fieldsIn(api: Awaited<ReturnType<typeof openWorkspace>>["api"]) {
  const { body } = await api.get<{ data: Lead[] }>("/v1/leads");
  return Object.fromEntries(body.data.map((lead) => [lead.id, lead.custom_fields]));
}

test("no row is so large that searching its table is slow, however large what was recorded", async () => {
  const { workspaceId } = await openWithLarge();
  const tables = await WORKSPACE_DB.prepare(
    "SELECT name FROM sqlite_schema WHERE sql LIKE '%WITHOUT ROWID' AND name IN ('leads', 'events', 'deliveries')",
  ).all<{ name: string }>();
  expect(tables.results).toHaveLength(3);
  for (const { name } of tables.results) {
    const { results } = await WORKSPACE_DB.prepare(`SELECT * FROM ${name} WHERE workspace_id = ?`)
      .bind(workspaceId)
      .all();
    expect(results.length).toBeGreaterThan(0);
    for (const row of results) {
      const parts = Object.values(row).map((part) =>
        Array.isArray(part) ? part.length : new TextEncoder().encode(String(part)).length,
      );
      expect(parts.reduce((sum, part) => sum + part, 0)).toBeLessThan(LARGE_BYTES + 1_000);
    }
  }
});

test("what is large is listed, posted, read back and exported like what is small", async () => {
  const { workspaceId, api, ids, webhookId, received } = await openWithLarge();
  const listed = await fieldsIn(api);
  expect(listed).toEqual({ [ids[0] ?? ""]: { text: TEXT }, [ids[1] ?? ""]: {} });
  const { items } = await Platform.exportWorkspace({ workspaceId });
  for (const { body } of received) {
    const { id, type, data } = JSON.parse(body);
    if (type === "run.completed") expect(data.actions).toEqual(ACTIONS);
    else expect(data.custom_fields).toEqual(listed[data.id]);
    expect(await Platform.readDelivery({ webhookId, eventId: id })).toMatchObject({ body });
    const isEvent = (item: ExportItem) => item.kind === "event" && item.id === id;
    const stored = type === "run.completed" ? body : "";
    expect(items.find(isEvent)).toMatchObject({ body: stored });
  }
  expect(items.find(({ id }) => id === ids[0])).toMatchObject({ customFields: { text: TEXT } });
});

test("reporting a lead again, larger or smaller, changes nothing", async () => {
  const { workspaceId, api, ids } = await openWithLarge();
  const swapped = [leadReport("large"), leadReport("small", { customFields: { text: TEXT } })];
  await Platform.recordLeads({ workspaceId, leads: swapped });
  expect(await fieldsIn(api)).toEqual({ [ids[0] ?? ""]: { text: TEXT }, [ids[1] ?? ""]: {} });
  expect(await largeRows(workspaceId, ids)).toEqual([1, 1]);
});

test("large parts go with what they belong to", async () => {
  const { workspaceId, ids } = await openWithLarge();
  expect(await largeRows(workspaceId, ids)).toEqual([1, 1]);
  await Platform.eraseLeads({ workspaceId, ids });
  expect(await largeRows(workspaceId, ids)).toEqual([1, 0]);
  await Platform.eraseWorkspace({ workspaceId });
  expect(await largeRows(workspaceId, ids)).toEqual([0, 0]);
});

test("storing them reads a few rows each, however many records there are", async () => {
  const { workspaceId } = await openWithLarge();
  const [automationId, now] = [await recordAutomation(workspaceId), Date.now()];
  const many = Array.from({ length: 100 }, (_, i) => leadReport(`many-${i}`));
  for (const at of [1, 2, 3])
    await Platform.recordLeads({
      workspaceId,
      leads: many.map((lead) => ({ ...lead, reference: `${lead.reference}-${at}` })),
    });
  const { DB, rows } = meteredDatabase();
  const metered = isolated({ DB }).env;
  const leads = [leadReport("later", { customFields: { text: TEXT } })];
  await record(metered, "recordLeads", { workspaceId, leads }, now);
  const runs = [runReport("later", automationId, { actions: ACTIONS })];
  await record(metered, "recordRuns", { workspaceId, runs }, now);
  expect(rows.written).toBeGreaterThan(8);
  expect(rows.read).toBeLessThan(150);
});
