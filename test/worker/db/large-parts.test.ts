import { exports } from "cloudflare:workers";
import { beforeAll, expect, test } from "vitest";
import { LARGE_BYTES } from "../../../src/db/schema.ts";
import {
  leadReport,
  listAll,
  openWorkspace,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { consumeFor, isolated, receivedBy, subscribe } from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { record } from "../../support/record.ts";
import { until } from "../../support/until.ts";

const { Platform } = exports;

const LARGE = { customFields: { text: 'é"'.repeat(10_000) } };
const ACTIONS = Array.from({ length: 100 }, () => ({ type: "é".repeat(200), status: "done" }));

/** A workspace with a large lead and a large run, both of which were posted to a subscriber. */
async function openWithLarge() {
  const { workspaceId, api } = await openWorkspace();
  const { id, url } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  const leads = [leadReport("large", LARGE), leadReport("small")];
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  const automationId = await recordAutomation(workspaceId);
  const runs = [runReport("large", automationId, { actions: ACTIONS, leadId: ids[0] })];
  await Platform.recordRuns({ workspaceId, runs });
  await consumeFor([id], isolated().env);
  await until(async () => (await receivedBy({ url })).length === 3);
  const { 0: large = "", 1: small = "" } = ids;
  return {
    ...{ workspaceId, automationId, large, webhookId: id, url },
    /** The custom fields that the API shows of each lead, and those that were reported. */
    fieldsShown: async () => {
      const shown = await listAll<{ id: string; custom_fields: object }>(api, "leads");
      return Object.fromEntries(shown.map((lead) => [lead.id, lead.custom_fields]));
    },
    fieldsReported: { [large]: LARGE.customFields, [small]: {} },
    /** The rows of both tables of large parts. */
    largeRows: async () => {
      const counts = WORKSPACE_DB.prepare(
        `SELECT (SELECT count(*) FROM large_bodies WHERE workspace_id = ?) AS bodies,
          (SELECT count(*) FROM large_leads WHERE lead_id IN (?, ?)) AS leads`,
      );
      return counts.bind(workspaceId, large, small).first();
    },
  };
}

let world: Awaited<ReturnType<typeof openWithLarge>>;
beforeAll(async () => {
  world = await openWithLarge();
});

test("no row is so large that searching its table is slow, however large what was recorded", async () => {
  const tables = await WORKSPACE_DB.prepare(
    "SELECT name FROM sqlite_schema WHERE sql LIKE '%WITHOUT ROWID' AND name IN ('leads', 'events', 'deliveries')",
  ).all<{ name: string }>();
  expect(tables.results).toHaveLength(3);
  for (const { name } of tables.results) {
    const all = WORKSPACE_DB.prepare(`SELECT * FROM ${name} WHERE workspace_id = ?`);
    const { results } = await all.bind(world.workspaceId).all();
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
  const { workspaceId, large, webhookId, url, fieldsReported, fieldsShown } = world;
  expect(await fieldsShown()).toEqual(fieldsReported);
  const { items } = await Platform.exportWorkspace({ workspaceId });
  for (const { body } of await receivedBy({ url })) {
    const { id, type, data } = JSON.parse(body);
    const isRun = type === "run.completed";
    if (isRun) expect(data.actions).toEqual(ACTIONS);
    else expect(data.custom_fields).toEqual(fieldsReported[data.id]);
    expect(await Platform.readDelivery({ webhookId, eventId: id })).toMatchObject({ body });
    const exported = items.find((item) => item.kind === "event" && item.id === id);
    expect(exported).toMatchObject({ body: isRun ? body : "" });
  }
  expect(items.find(({ id }) => id === large)).toMatchObject(LARGE);
});

test("storing large parts reads a few rows each, however many records there are", async () => {
  const { workspaceId, automationId } = world;
  for (const at of [1, 2, 3]) {
    const leads = Array.from({ length: 100 }, (_, i) => leadReport(`many-${i}-${at}`));
    await Platform.recordLeads({ workspaceId, leads });
  }
  const { DB, rows } = meteredDatabase();
  const metered = isolated({ DB }).env;
  const leads = [leadReport("later", LARGE)];
  await record(metered, "recordLeads", { workspaceId, leads }, Date.now());
  const runs = [runReport("later", automationId, { actions: ACTIONS })];
  await record(metered, "recordRuns", { workspaceId, runs }, Date.now());
  expect(rows.written).toBeGreaterThan(8);
  expect(rows.read).toBeLessThan(150);
});

test("reporting a lead again, larger or smaller, changes nothing; large parts go with what they belong to", async () => {
  const { workspaceId, large, fieldsReported, fieldsShown, largeRows } = await openWithLarge();
  const leads = [leadReport("large"), leadReport("small", LARGE)];
  await Platform.recordLeads({ workspaceId, leads });
  expect(await fieldsShown()).toEqual(fieldsReported);
  expect(await largeRows()).toEqual({ bodies: 1, leads: 1 });
  await Platform.eraseLeads({ workspaceId, ids: [large] });
  expect(await largeRows()).toEqual({ bodies: 1, leads: 0 });
  await Platform.eraseWorkspace({ workspaceId });
  expect(await largeRows()).toEqual({ bodies: 0, leads: 0 });
});
