import { z } from "@hono/zod-openapi";
import { and, eq, type SQL, sql } from "drizzle-orm";
import { LeadSource } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import {
  commaList,
  fromJson,
  inJson,
  insertFrom,
  mapColumns,
  omitColumns,
  qb,
} from "../db/builder.ts";
import { type Database, insertEach, query, type Statements } from "../db/client.ts";
import { isOnPage, type Page, type PageRequest, preparePage } from "../db/page.ts";
import { erasedLeads, leads } from "../db/schema.ts";
import { decryptJson } from "../encryption/seal.ts";
import { logError } from "../log.ts";
import type { Hex } from "../primitives/bytes.ts";
import { expectDataKey, loadDataKey, sealedDataKeyOf } from "../workspaces/data-keys.ts";
import { type ReportedPerson, SHOWN_PERSON, showPerson } from "./person.ts";

/** SQL expression: the encrypted personal data of a lead, in hexadecimal, like all bytes in TypeScript (schema.ts). */
export const SEALED = sql<Hex>`hex(${leads.sealed})`;

const LEAD_COLUMNS = {
  ...omitColumns(leads, "workspaceId", "reference", "eventId"),
  sealed: SEALED.as("sealed"),
};

/** A lead as stored, with `sealed` in hexadecimal. */
export type LeadRow = Omit<typeof leads.$inferSelect, "workspaceId" | "reference" | "eventId">;

/** A lead with its personal data, which is null if it cannot be decrypted. */
export interface DecryptedLead extends LeadRow {
  person: ReportedPerson | null;
}

const LEAD_ORDER = { at: leads.createdAt, id: leads.id };

/** The approximate size of a lead in JSON, without its personal data, in bytes. */
const OTHER_BYTES = 300;

const readPage = preparePage({
  order: LEAD_ORDER,
  select: qb
    .select(LEAD_COLUMNS)
    .from(leads)
    .where(and(eq(leads.workspaceId, sql.placeholder("workspaceId")), isOnPage(LEAD_ORDER))),
  // `sealed` of `LEAD_COLUMNS` is hexadecimal, and encryption keeps the length of the JSON.
  bytes: sql`octet_length(sealed) / 2 + ${OTHER_BYTES}`,
});

/** Maximum pages that are read to find a lead that can be decrypted. */
const DAMAGED_PAGES_MAX = 10;

/**
 * Reads one page of the workspace's leads, newest first. A lead that cannot be decrypted is left out, so that a
 * client can still read the leads behind it. If no lead of a page can be decrypted, the next page is read, because a client
 * may take an empty page for the end. After `DAMAGED_PAGES_MAX` pages, an empty one is returned, with a cursor.
 *
 * @param keys `ENCRYPTION_KEYS`.
 */
export async function listLeads(
  db: Database,
  keys: string,
  workspaceId: string,
  request: PageRequest,
): Promise<Page<Lead>> {
  let after = request.after;
  for (let pagesRead = 1; ; pagesRead++) {
    const page = await readLeadPage(db, keys, workspaceId, { ...request, after });
    const items = page.items.map(toLead).filter((lead) => lead !== null);
    if (items.length > 0 || page.next === null || pagesRead === DAMAGED_PAGES_MAX)
      return { items, next: page.next };
    after = page.next;
  }
}

/** Reads one page of the workspace's leads, newest first, and the workspace's data key at the same time. */
export async function readLeadPage(
  db: Database,
  keys: string,
  workspaceId: string,
  request: PageRequest,
): Promise<Page<DecryptedLead>> {
  const [{ items: rows, next }, dataKey] = await Promise.all([
    readPage(db, { workspaceId }, request),
    loadDataKey(db, keys, workspaceId),
  ]);
  const items = await Promise.all(rows.map((row) => decryptLead(dataKey, row)));
  return { items, next };
}

/** Reads the workspace's lead with an id; null if there is none. */
export async function findLead(
  db: Database,
  keys: string,
  workspaceId: string,
  id: string,
): Promise<DecryptedLead | null> {
  const [row] = await query(
    db,
    qb
      .select({ ...LEAD_COLUMNS, sealedDataKey: sealedDataKeyOf(leads.workspaceId) })
      .from(leads)
      .where(and(eq(leads.id, id), eq(leads.workspaceId, workspaceId))),
  );
  if (!row) return null;
  return decryptLead(await expectDataKey(keys, { workspaceId, ...row }), row);
}

/** Reads the names of the workspace's leads among these ids; null for one that has none or cannot be decrypted. */
export async function findLeadNames(
  db: Database,
  dataKey: CryptoKey,
  workspaceId: string,
  ids: string[],
): Promise<[id: string, name: string | null][]> {
  const rows = await query(
    db,
    qb
      .select(LEAD_COLUMNS)
      .from(leads)
      .where(and(inJson(leads.id, ids), sql`+${leads.workspaceId} = ${workspaceId}`)),
  );
  return Promise.all(
    rows.map(async (row): Promise<[string, string | null]> => {
      const person = await decryptPerson(dataKey, row);
      return [row.id, person?.name ?? null];
    }),
  );
}

/** A lead to insert, with encrypted personal data; `eventId` is the event that announces it. */
export type NewLead = Omit<typeof leads.$inferSelect, "workspaceId">;

const NEW_LEAD_COLUMNS = Object.keys(omitColumns(leads, "workspaceId")) as (keyof NewLead)[];

/** SQL condition: the workspace's lead with this id was not erased recently. */
export function isNotErased(workspaceId: string, id: SQL): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${erasedLeads}
    WHERE ${erasedLeads.workspaceId} = ${workspaceId} AND ${erasedLeads.id} = ${id})`;
}

/** Inserts leads. Stored leads stay unchanged, and erased ones stay erased. */
export function insertLeads(workspaceId: string, recorded: NewLead[]): Statements<number> {
  return insertEach(recorded, (chunk) =>
    insertFrom(
      leads,
      { ...mapColumns(leads, NEW_LEAD_COLUMNS, fromJson("r")), workspaceId },
      sql`FROM json_each(${chunk}) AS r WHERE ${isNotErased(workspaceId, sql`r.value->>'id'`)} ON CONFLICT (id) DO NOTHING`,
    ),
  );
}

/** Selects the ids among these that are leads of the workspace. */
export const selectLeads = (workspaceId: string, ids: string[]) =>
  selectIds(leads, workspaceId, ids);

/** Selects the ids among these that are erased leads of the workspace. */
export const selectErasedLeads = (workspaceId: string, ids: string[]) =>
  selectIds(erasedLeads, workspaceId, ids);

function selectIds(table: typeof leads | typeof erasedLeads, workspaceId: string, ids: string[]) {
  return qb
    .select({ id: table.id })
    .from(sql`json_each(${JSON.stringify(ids)}) AS named`)
    .innerJoin(table, sql`${table.id} = named.value AND ${table.workspaceId} = ${workspaceId}`);
}

/** SQL expression: the row of a lead as JSON, for `parseLeadRow`. */
export const LEAD_AS_JSON = sql<string>`json_object(${commaList(
  Object.entries({ ...LEAD_COLUMNS, sealed: SEALED }).flatMap(([name, column]) => [
    sql.raw(`'${name}'`),
    column,
  ]),
)})`;

/** Parses the JSON that `LEAD_AS_JSON` returns. */
export function parseLeadRow(json: string): LeadRow {
  return JSON.parse(json);
}

/**
 * Decrypts the personal data of a lead. A failure is logged, not thrown, because only this lead is damaged.
 *
 * @param dataKey the data key of the workspace.
 * @returns null if it cannot be decrypted.
 */
export async function decryptPerson(
  dataKey: CryptoKey,
  { id, sealed }: Pick<LeadRow, "id" | "sealed">,
): Promise<ReportedPerson | null> {
  try {
    return await decryptJson<ReportedPerson>(dataKey, id, sealed);
  } catch (error) {
    logError("lead_decrypt_failed", error, { leadId: id });
    return null;
  }
}

/** Decrypts the personal data of a lead, and adds it to the row. */
export async function decryptLead(dataKey: CryptoKey, row: LeadRow): Promise<DecryptedLead> {
  return { ...row, person: await decryptPerson(dataKey, row) };
}

/** The public shape of a lead. */
export const Lead = z
  .object({
    id: idField("lead", "Identifies the lead."),
    source: LeadSource,
    agent_id: idField("agent", "The agent that captured the lead."),
    ...SHOWN_PERSON,
    created_at: timeField("When the lead was captured."),
  })
  .openapi("Lead", {
    description:
      "A capture of a person by an agent. A person who is captured twice is two leads, with two ids.",
  });

export type Lead = z.infer<typeof Lead>;

/** Returns the public shape of a lead; null if it cannot be decrypted. */
export function toLead(lead: DecryptedLead): Lead | null {
  if (!lead.person) return null;
  return {
    id: lead.id,
    source: lead.source,
    agent_id: lead.agentId,
    ...showPerson(lead.person),
    created_at: isoTime(lead.createdAt),
  };
}
