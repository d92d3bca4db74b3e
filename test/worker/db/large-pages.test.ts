import { env, exports } from "cloudflare:workers";
import fc from "fast-check";
import { expect, test } from "vitest";
import { openDatabase } from "../../../src/db/client.ts";
import type { Listing, PageRequest } from "../../../src/db/page.ts";
import { knownDataKey, sealPersonalData } from "../../../src/encryption/personal-data.ts";
import { type Lead, listLeads } from "../../../src/records/leads.ts";
import { listRuns, listRunsOfAutomation } from "../../../src/records/runs.ts";
import { leadReport, openWorkspace, recordAutomation, runReport } from "../../support/api.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const { Platform } = exports;
const KEYS = env.ENCRYPTION_KEYS;
const KB = 1_000;
const PAGE_MAX = 2_000 * KB;
/** What a page may be larger than `PAGE_MAX`: the fields of a hundred items that are always small. */
const SMALL_FIELDS = 50 * KB;
const FIRST_PAGE = { limit: 100, after: null };

/** A workspace with leads of about these sizes in bytes, newest first. */
async function openWithLeads(sizes: number[]) {
  const { workspaceId } = await openWorkspace();
  const leads = sizes.map((size, i) =>
    leadReport(String(i), {
      customFields: { text: "x".repeat(Math.max(0, size - 100)) },
      createdAt: new Date(Date.UTC(2026, 0, 1) - i * KB).toISOString(),
    }),
  );
  const ids: string[] = [];
  for (let i = 0; i < leads.length; i += 50)
    ids.push(...(await Platform.recordLeads({ workspaceId, leads: leads.slice(i, i + 50) })).ids);
  return { workspaceId, ids };
}

/** A workspace with that many runs of one automation, as large as runs may be. */
async function openWithLargeRuns(count: number) {
  const { workspaceId } = await openWorkspace();
  const automationId = await recordAutomation(workspaceId);
  const actions = Array(100).fill({ type: "é".repeat(200), status: "é".repeat(100) });
  const runs = Array.from({ length: count }, (_, i) =>
    runReport(String(i), automationId, { actions }),
  );
  return { workspaceId, automationId, ids: (await Platform.recordRuns({ workspaceId, runs })).ids };
}

type List<Item> = (
  db: ReturnType<typeof openDatabase>,
  request: PageRequest,
) => Promise<Listing<Item> | null>;

/** All pages of a list, each with what reading it took. */
async function readAll<Item>(list: List<Item>, limit: number) {
  const pages: { items: Item[]; rows: ReturnType<typeof meteredDatabase>["rows"] }[] = [];
  let after: PageRequest["after"] = null;
  do {
    const { DB, rows } = meteredDatabase();
    const page: Listing<Item> | null = await list(openDatabase(DB), { limit, after });
    if (!page) throw new Error("there is no such list");
    pages.push({ items: page.items, rows });
    after = page.next;
  } while (after);
  return pages;
}

const leadsOf =
  (workspaceId: string): List<Lead> =>
  (db, request) =>
    listLeads(db, KEYS, workspaceId, request);

const bytesOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value)).length;

test.each(["social runs", "all runs", "an automation's runs"])(
  "%s that are as large as possible are shown in pages of some 2 MB",
  async (what) => {
    const { workspaceId, automationId } = await openWithLargeRuns(50);
    const all = { crmSource: what === "all runs" };
    const pages = await readAll(
      (db, request) =>
        what === "an automation's runs"
          ? listRunsOfAutomation(db, workspaceId, all, automationId, request)
          : listRuns(db, workspaceId, all, request),
      100,
    );
    expect(pages).toHaveLength(2);
    const shown = pages.flatMap(({ items }) => items);
    expect(new Set(shown.map(({ id }) => id)).size).toBe(50);
    for (const { actions } of shown) expect(bytesOf(actions)).toBeGreaterThan(60 * KB);
    for (const { items, rows } of pages)
      for (const bytes of [bytesOf(items), rows.bytes])
        expect(bytes).toBeLessThan(PAGE_MAX + SMALL_FIELDS);
  },
);

test("whatever the sizes and the limit, no lead is skipped or repeated, and no page is too large or too small", async () => {
  const size = fc.oneof(
    { weight: 3, arbitrary: fc.constant(200) },
    { weight: 1, arbitrary: fc.integer({ min: 200, max: 64 * KB }) },
    { weight: 1, arbitrary: fc.constant(64 * KB) },
  );
  const sizes = fc.array(size, { minLength: 1, maxLength: 120 });
  const check = async (each: number[], limit: number) => {
    const { workspaceId, ids } = await openWithLeads(each);
    const pages = await readAll(leadsOf(workspaceId), limit);
    const shown = pages.flatMap(({ items }) => items);
    expect(shown.map(({ id }) => id)).toEqual(ids);
    const texts = shown.map(({ custom_fields }) => String(custom_fields.text).length);
    expect(texts).toEqual(each.map((size) => Math.max(0, size - 100)));
    for (const [i, { items, rows }] of pages.entries()) {
      expect(items.length).toBeGreaterThan(0);
      expect(bytesOf(items)).toBeLessThan(PAGE_MAX + SMALL_FIELDS);
      if (i < pages.length - 1 && items.length < limit)
        expect(bytesOf(items)).toBeGreaterThan(PAGE_MAX / 2 - 64 * KB);
      // At worst, half a page comes along that is not shown.
      expect(rows.bytes).toBeLessThan(1.5 * PAGE_MAX + SMALL_FIELDS);
      expect(rows.read).toBeLessThanOrEqual(limit + 3 + 4 * items.length);
    }
  };
  const largest = Array(100).fill(64 * KB);
  await fc.assert(fc.asyncProperty(sizes, fc.constantFrom(1, 10, 25, 50, 100), check), {
    ...{ numRuns: 6, examples: [[largest, 100]] },
  });
}, 60_000);

test("a page has at least one item, however large", async () => {
  const { workspaceId, ids } = await openWithLeads([200, 200, 200]);
  const dataKey = knownDataKey(workspaceId) as CryptoKey;
  const update = env.DB.prepare("UPDATE leads SET sealed = ? WHERE id = ?");
  for (const id of ids) {
    const sealed = await sealPersonalData(dataKey, id, { name: "x".repeat(950 * KB) });
    await update.bind(Uint8Array.fromHex(sealed), id).run();
  }
  const pages = await readAll(leadsOf(workspaceId), 100);
  expect(pages.map(({ items }) => items.length)).toEqual([1, 1, 1]);
});

test("a page leaves out a large lead that is erased while it is read", async () => {
  const { workspaceId, ids } = await openWithLeads([64 * KB, 64 * KB, 200]);
  const { DB } = meteredDatabase(async () => {
    await Platform.eraseLeads({ workspaceId, ids: ids.slice(1, 2) });
  });
  const page = await leadsOf(workspaceId)(openDatabase(DB), FIRST_PAGE);
  expect(page?.items.map(({ id }) => id)).toEqual([ids[0], ids[2]]);
});

test("a page leaves out a large run that is deleted while it is read", async () => {
  const { workspaceId, ids } = await openWithLargeRuns(2);
  const { DB } = meteredDatabase(async () => {
    await env.DB.prepare("DELETE FROM runs WHERE id = ?").bind(ids[0]).run();
  });
  const { items } = await listRuns(openDatabase(DB), workspaceId, { crmSource: false }, FIRST_PAGE);
  expect(items.map(({ id }) => id)).toEqual([ids[1]]);
});
