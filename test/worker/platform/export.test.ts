import { env } from "cloudflare:workers";
import { type Column, getTableColumns, getTableName } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { RECORD_MAX_BYTES } from "../../../src/contract/limits.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { connect } from "../../../src/db/client.ts";
import { leads } from "../../../src/db/schema.ts";
import type { ExportItem } from "../../../src/lifecycle/export.ts";
import { exportPage } from "../../../src/lifecycle/export.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import { PERSONAL_FIELDS } from "../../../src/records/person.ts";
import { EXPORT_KINDS, OWNED } from "../../../src/workspaces/table-registry.ts";
import {
  automationReport,
  errorOf,
  exportAll,
  leadReport,
  openWorkspace,
  Platform,
  pagesOf,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import {
  createWorkspace,
  deliveriesTo,
  HOUR_MS,
  setDeliveries,
  setSubscription,
  subscribe,
  subscriberUrl,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { useThreeDatabases, WORKSPACE_DB } from "../../support/placement.ts";
import { damageLead, fillLeads } from "../../support/record.ts";
import { announcedEmail, insertSubscriptions } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";

useThreeDatabases();

const idsOf = (items: ExportItem[], kind: string) =>
  items.flatMap((item) => (item.kind === kind ? [item.id] : []));

/** A workspace with a subscription to which nobody delivers. */
async function withLeased() {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  await setSubscription(id, { leasedBy: "test", leasedUntil: 9e12 });
  return workspaceId;
}

/** A workspace with one of everything that is stored. */
async function withEverything() {
  const { workspaceId, keyId, apiKey } = await openWorkspace();
  await Platform.updateWorkspace({ workspaceId, adminEmails: ["admin@example.com"] });
  const rolled = await Platform.rollApiKey({ keyId, overlapSeconds: 60 });
  const failing = await subscribe(workspaceId, { url: subscriberUrl("status-500") });
  const deleted = await subscribe(workspaceId, { url: subscriberUrl("status-500") });
  const { secret } = await Platform.rotateWebhookSecret({ webhookId: failing.id });
  const automationId = await recordAutomation(workspaceId, { type: "crm_source", name: "CRM" });
  const removedId = await recordAutomation(workspaceId);
  const customFields = { note: "é “x”", nested: { list: [1, null, true] } };
  const { ids } = await Platform.recordLeads({
    workspaceId,
    leads: [leadReport("lead", { name: "Zoé", email: "zoe@example.com", customFields })],
  });
  const [leadId = ""] = ids;
  const actions = [{ type: "reply", status: "sent" }];
  await Platform.recordRuns({
    workspaceId,
    runs: [runReport("run", automationId, { leadId, actions }), runReport("hidden", removedId)],
  });
  await Platform.removeAutomations({ workspaceId, ids: [removedId] });
  await Platform.eraseLeads({ workspaceId, references: ["erased"] });
  for (const { id } of [failing, deleted])
    await expect
      .poll(async () => (await deliveriesTo(id))[0]?.stepsUsed, { timeout: 30_000 })
      .toBeGreaterThan(0);
  // It sends the event again.
  await setDeliveries(failing.id, { state: "exhausted" });
  await Platform.redeliver({ webhookId: failing.id, since: isoTime(Date.now() - HOUR_MS) });
  // Leased, or its row would go with its pending deliveries.
  await WORKSPACE_DB.prepare(
    `UPDATE subscriptions SET deleted_at = 1, has_to_end = 1, epoch = epoch + 1,
      cancelled_before = json_object('lead.created', epoch + 1),
      leased_by = 'test', leased_until = 9e12, next_message_at = 0 WHERE id = ?`,
  )
    .bind(deleted.id)
    .run();
  const announced = { failing: announcedEmail({ announcedAt: 2 }) };
  await setSubscription(failing.id, { announced });
  const secrets = [apiKey, rolled.apiKey, secret, failing.secret];
  const known = { workspaceId, automationId, removedId, leadId };
  return { ...known, failing, deleted, secrets, customFields };
}

/** The columns that are secrets, or are shown in another form. */
const HIDDEN = [
  ...[
    "keyHash",
    "sealedSecret",
    "earlierSecrets",
    "sealedHeaders",
    "idempotencyKey",
    "sealedDataKey",
  ],
  ...["workspaceId", "sealed", "response"],
];

/** What is exported of a workspace, and the rows that this reads. */
async function meteredExport(workspaceId: string) {
  const { DB, rows } = meteredDatabase();
  const db = connect(DB);
  const pages = await pagesOf((cursor) =>
    exportPage(db, db, env.ENCRYPTION_KEYS, workspaceId, cursor),
  );
  return { items: pages.flat(), pages: pages.length, rowsRead: rows.read };
}

describe("exportWorkspace", () => {
  test("leaves out every encrypted column, or has it decrypted", () => {
    for (const { table, secret = [] } of OWNED.flatMap((owned) => [owned, ...owned.children])) {
      const columns = Object.entries<Column>(getTableColumns(table));
      const encrypted = columns.filter(
        ([name, column]) => column.getSQLType() === "blob" || name.startsWith("sealed"),
      );
      expect(secret, getTableName(table)).toEqual(
        expect.arrayContaining(encrypted.map(([, column]) => column)),
      );
    }
  });

  test("returns every column of every table in the registry in readable form, and no secret", async () => {
    const all = await withEverything();
    const other = await withEverything();
    const items = (await exportAll(all.workspaceId)).flat();
    const kinds = [...new Set(items.map(({ kind }) => kind))];
    expect(kinds.toSorted()).toEqual([...EXPORT_KINDS].toSorted());
    const known = items.map((item) => Object.keys(item).toSorted().join());
    for (const { kind, table } of OWNED.flatMap((owned) => [owned, ...owned.children])) {
      if (kind === null) continue;
      const columns = Object.keys(getTableColumns(table) as Record<string, Column>)
        .filter((name) => !HIDDEN.includes(name))
        .map((name) => (name === "subscriptionId" ? "webhookId" : name))
        .concat(table === leads ? Object.keys(PERSONAL_FIELDS) : []);
      expect(known, getTableName(table)).toContain([...columns, "kind"].toSorted().join());
    }
    const webhooks = [all.failing.id, all.deleted.id].toSorted();
    const automations = [all.automationId, all.removedId].toSorted();
    expect(idsOf(items, "automation").toSorted()).toEqual(automations);
    expect(idsOf(items, "webhook").toSorted()).toEqual(webhooks);
    expect(idsOf(items, "api_key")).toHaveLength(2);
    // The run of the removed automation was deleted with it.
    expect(idsOf(items, "run")).toHaveLength(1);
    const owedTo = items.flatMap((item) => (item.kind === "delivery" ? [item.webhookId] : []));
    expect(owedTo.toSorted()).toEqual(webhooks);
    const lead = { name: "Zoé", email: "zoe@example.com", customFields: all.customFields };
    const createdAt = expect.stringMatching(/^\d{4}-.*Z$/);
    for (const expected of [
      { kind: "webhook", id: all.deleted.id, leasedUntil: isoTime(9e12), nextMessageAt: null },
      { kind: "workspace", accessGranted: true, webhooksMax: null },
      { kind: "lead", id: all.leadId, reference: "lead", ...lead, createdAt },
      // Its body is made from the lead.
      { kind: "event", type: "lead.created", leadId: all.leadId, body: "" },
      { kind: "attempt", webhookId: all.failing.id, status: 500 },
      { kind: "run", actions: [{ type: "reply", status: "sent" }] },
      {
        kind: "webhook",
        id: all.failing.id,
        announced: { failing: { ...announcedEmail(), since: isoTime(1), announcedAt: isoTime(2) } },
      },
    ])
      expect(items).toContainEqual(expect.objectContaining(expected));
    const text = JSON.stringify(items);
    // No time is in Unix milliseconds.
    expect(text).not.toMatch(/":[1-9]\d{12}\b/);
    const hashes = await Promise.all(all.secrets.map(hashApiKey));
    for (const secret of [...all.secrets, ...hashes, "whsec_", "test."])
      expect(text).not.toContain(secret);
    for (const foreign of [other.workspaceId, other.leadId, other.failing.id, other.automationId])
      expect(text).not.toContain(foreign);
  });

  test("marks a lead that cannot be decrypted", async () => {
    const { workspaceId } = await openWorkspace();
    const leads = [leadReport("1"), leadReport("2")];
    const { ids } = await Platform.recordLeads({ workspaceId, leads });
    await damageLead(ids[0]);
    const exported = (await exportAll(workspaceId)).flat().filter(({ kind }) => kind === "lead");
    const read = new Map(exported.map(({ id, unreadable, name }) => [id, [unreadable, name]]));
    expect(ids.map((id) => read.get(id))).toEqual([
      [true, undefined],
      [undefined, null],
    ]);
  });

  test("skips nothing that existed at the start, and repeats nothing, while others write", async () => {
    const workspaceId = await withLeased();
    const automationId = await recordAutomation(workspaceId);
    const day = (n: number) => new Date(Date.UTC(2026, 0, 1 + (n % 300))).toISOString();
    let recorded = 0;
    const record = async () => {
      const range = Array.from({ length: 100 }, () => recorded++);
      const leads = range.map((n) => leadReport(`lead-${n}`, { createdAt: day(n * 7) }));
      const { ids } = await Platform.recordLeads({ workspaceId, leads });
      const runs = range.map((n) =>
        runReport(`run-${n}`, automationId, { occurredAt: day(n * 11) }),
      );
      return [...ids, ...(await Platform.recordRuns({ workspaceId, runs })).ids];
    };
    const atStart: string[] = [];
    while (recorded < 900) atStart.push(...(await record()));
    // In the meantime, the automation becomes a CRM one.
    const pages = await exportAll(workspaceId, async () => {
      const type = recorded % 200 === 0 ? "crm_source" : "social_comments";
      const automations = [automationReport("moving", { type, name: "CRM" })];
      await Platform.recordAutomations({ workspaceId, automations });
      await record();
    });
    expect(pages.length).toBeGreaterThan(4);
    for (const page of pages) expect(page.length).toBeLessThan(1_000 + 12 * 50);
    const items = pages.flat();
    const ids = [...idsOf(items, "lead"), ...idsOf(items, "run")];
    const pairs = items.flatMap((item) => (item.kind === "delivery" ? [item.eventId] : []));
    const [shown, delivered] = [new Set<unknown>(ids), new Set<unknown>(pairs)];
    expect([shown.size, delivered.size]).toEqual([ids.length, pairs.length]);
    expect(atStart.filter((id) => !shown.has(id))).toEqual([]);
    expect(idsOf(items, "event").filter((id) => !delivered.has(id))).toEqual([]);
  });

  test("keeps pages small if each record is as large as possible", async () => {
    const workspaceId = await withLeased();
    const customFields = { note: "é".repeat((RECORD_MAX_BYTES - 250) / 2) };
    for (let i = 0; i < 120; i += 20) {
      const leads = Array.from({ length: 20 }, (_, n) => leadReport(`${i + n}`, { customFields }));
      await Platform.recordLeads({ workspaceId, leads });
    }
    const pages = await exportAll(workspaceId);
    const sizes = pages.map((page) => new TextEncoder().encode(JSON.stringify(page)).length);
    expect(Math.max(...sizes)).toBeGreaterThan(1_000_000);
    // It may exceed its limit of 1 MB by 50 rows. All records together are larger.
    expect(Math.max(...sizes)).toBeLessThan(1_850_000);
    expect(sizes.reduce((sum, size) => sum + size)).toBeGreaterThan(1_950_000);
    expect(idsOf(pages.flat(), "lead")).toHaveLength(120);
    expect(idsOf(pages.flat(), "event")).toHaveLength(120);
  });

  test("reads the rows it returns, whatever other workspaces have", async () => {
    const [workspaceId, crowd] = [await withLeased(), await withLeased()];
    for (const id of [workspaceId, crowd, crowd]) {
      const references = Array.from({ length: 100 }, () => crypto.randomUUID());
      const automations = references.map((reference) => automationReport(reference));
      const { ids } = await Platform.recordAutomations({ workspaceId: id, automations });
      await Platform.removeAutomations({ workspaceId: id, ids: ids.slice(0, 50) });
      const leads = references.map((reference) => leadReport(reference));
      await Platform.recordLeads({ workspaceId: id, leads });
    }
    const { items, pages, rowsRead } = await meteredExport(workspaceId);
    expect(items.length).toBeGreaterThanOrEqual(400);
    expect(pages).toBe(1);
    // For a lead, its event and its delivery, each query reads one or a few rows.
    expect(rowsRead).toBeLessThan(1_200);
  });

  test("reads little more than it returns for each delivery, however many follow", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await storeEvents(workspaceId, id, 2_000, Date.now(), "delivered");
    const { items, rowsRead } = await meteredExport(workspaceId);
    expect(items.filter(({ kind }) => kind === "delivery")).toHaveLength(2_000);
    expect(rowsRead).toBeLessThan(5 * items.length);
  });

  test("ends with a page that its last row fills", async () => {
    const workspaceId = await createWorkspace();
    const ids = Array.from({ length: 519 }, (_, i) => `whk_${i}${workspaceId}`);
    await insertSubscriptions(ids.map((id) => ({ id, workspaceId })));
    await WORKSPACE_DB.prepare(
      `INSERT INTO replays (workspace_id, subscription_id, id, filter, created_at, examined_at)
        SELECT workspace_id, id, 'rpl_', '{}', 0, 0 FROM subscriptions WHERE workspace_id = ? LIMIT 480`,
    )
      .bind(workspaceId)
      .run();
    const { items, nextCursor } = await Platform.exportWorkspace({ workspaceId });
    expect(items).toHaveLength(1_000);
    expect(nextCursor).toBe(null);
  });

  test("goes on with the next table behind a page that the last row of another one fills", async () => {
    const workspaceId = await createWorkspace();
    const ids = Array.from({ length: 999 }, (_, i) => `whk_${i}${workspaceId}`);
    await insertSubscriptions(ids.map((id) => ({ id, workspaceId })));
    const id = await recordAutomation(workspaceId);
    const [first, second, ...others] = await exportAll(workspaceId);
    expect([first?.length, others]).toEqual([1_000, []]);
    expect(second).toMatchObject([{ kind: "automation", id }]);
  });

  test("rejects an invalid cursor, and another workspace's", async () => {
    const [one, other] = [await createWorkspace(), await createWorkspace()];
    await fillLeads(one, 1_001);
    const { nextCursor } = await Platform.exportWorkspace({ workspaceId: one });
    expect(nextCursor).not.toBeNull();
    expect((await Platform.exportWorkspace({ workspaceId: other })).nextCursor).toBeNull();
    for (const [workspaceId, cursor] of [
      [other, nextCursor],
      [one, "x"],
      [one, btoa(JSON.stringify([1, "export", one, 99])).replaceAll("=", "")],
      [one, btoa(JSON.stringify([1, "export", one, 4, "a"])).replaceAll("=", "")],
    ] as const)
      expect(await errorOf(Platform.exportWorkspace({ workspaceId, cursor }))).toBe(
        "exportWorkspace: cursor: is not a cursor of this workspace's export",
      );
  });
});
