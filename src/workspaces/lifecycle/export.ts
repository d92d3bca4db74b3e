import { type Column, getTableColumns, type SQL, sql } from "drizzle-orm";
import { decodeValues, EXPORT_LIST, encodeValues } from "../../contract/cursor.ts";
import { InputError } from "../../contract/input-error.ts";
import { isoTime } from "../../contract/time.ts";
import { list, toJsonValue } from "../../db/builder.ts";
import { type Database, query, rows } from "../../db/client.ts";
import { type LastAttempt, leads } from "../../db/schema.ts";
import { openDataKey } from "../../encryption/personal-data.ts";
import { type LeadRow, readPersonalData } from "../../records/leads.ts";
import { toPersonalData } from "../../records/person.ts";
import { dataKeyOf } from "../data-keys.ts";
import type { ExportItem, Json } from "../export-item.ts";
import {
  type Exported,
  PARTS,
  type Part,
  type Position,
  positionOf,
  selectRows,
} from "./export-parts.ts";

/** An export page is full at this many items or bytes of JSON; the last rows read may exceed it. */
const EXPORT_PAGE_MAX_ITEMS = 1_000;
const EXPORT_PAGE_MAX_BYTES = 1_000_000;

/** A position in an export. */
interface Place {
  /** Index into `PARTS`. */
  part: number;
  /** The position of the last row; null before the first. */
  after: Position | null;
}

/**
 * One page of everything stored about a workspace, except secrets. All that existed when the first
 * page was read appears on some page, unless it was deleted in the meantime; newer rows may appear.
 *
 * @param db the database that the workspace lives in.
 * @param keys `ENCRYPTION_KEYS`.
 * @throws InputError for a cursor of another list or workspace; Error if a lead cannot be decrypted.
 */
export async function exportPage(
  db: Database,
  directory: Database,
  keys: string,
  workspaceId: string,
  cursor: string | null,
): Promise<{ items: ExportItem[]; nextCursor: string | null }> {
  const items: ExportItem[] = [];
  let bytes = 0;
  let place = parsePlace(workspaceId, cursor);
  while (items.length < EXPORT_PAGE_MAX_ITEMS && bytes < EXPORT_PAGE_MAX_BYTES) {
    const part = PARTS[place.part];
    if (!part) return { items, nextCursor: null };
    const source = part.isOfDirectory ? directory : db;
    const found = await listRows(source, keys, part, workspaceId, place.after);
    for (const row of found) {
      const added = toItems(part, row);
      items.push(...added);
      bytes += new TextEncoder().encode(JSON.stringify(added)).length;
    }
    const last = found.at(-1);
    place =
      last && found.length === part.atOnce
        ? { ...place, after: positionOf(part, last) }
        : { part: place.part + 1, after: null };
  }
  const isOver = place.part === PARTS.length;
  return { items, nextCursor: isOver ? null : encodePlace(workspaceId, place) };
}

type Row = Record<string, unknown>;

/** The next rows of a part: its columns, and the nested rows as a JSON string in `nested`. */
async function listRows(
  db: Database,
  keys: string,
  part: Part,
  workspaceId: string,
  after: Place["after"],
): Promise<Row[]> {
  const { nested, atOnce } = part;
  const selected = [
    ...columnsOf(part).map(([name, column]) => sql`${column} AS ${sql.identifier(name)}`),
    ...(nested ? [sql`${toJson(nested)} AS nested`] : []),
    ...(part.table === leads ? SEALED : []),
  ];
  const found = await query(db, rows<Row>(selectRows(part, workspaceId, selected, after, atOnce)));
  if (part.table !== leads) return found;
  const sealed = found as (Row & SealedLead)[];
  const dataKey = await openDataKey(keys, workspaceId, sealed[0]?.dataKey ?? null);
  return Promise.all(sealed.map((row) => openLead(dataKey, row)));
}

/** The columns to select for `openLead`. */
const SEALED = [
  sql`${toJsonValue(leads.sealed)} AS sealed`,
  sql`${dataKeyOf(leads.workspaceId)} AS "dataKey"`,
];

type SealedLead = Pick<LeadRow, "id" | "sealed"> & { dataKey: string | null };

/** The row of a lead with its personal data in the clear. */
async function openLead(dataKey: CryptoKey | null, row: Row & SealedLead): Promise<Row> {
  return { ...row, personal: toPersonalData(await readPersonalData(dataKey, row)) };
}

/** A table's exported columns, by item field name. */
function columnsOf({ table, secret = [] }: Exported) {
  const hidden = [...secret, "workspaceId"];
  return Object.entries<Column>(getTableColumns(table)).filter(([name]) => !hidden.includes(name));
}

/** The nested rows as a JSON array of objects. */
function toJson(nested: Exported & { where: SQL | undefined }): SQL {
  const fields = columnsOf(nested).flatMap(([name, column]) => [sql`${name}`, column]);
  return sql`(SELECT json_group_array(json_object(${list(fields)}))
    FROM ${nested.table} WHERE ${nested.where})`;
}

/** The item for a row, followed by those for its nested rows. */
function toItems(part: Part, row: Row): ExportItem[] {
  const { nested } = part;
  const inner: Row[] = nested ? JSON.parse(row.nested as string) : [];
  return [toItem(part, row), ...inner.map((one) => toItem(nested as Exported, one))];
}

function toItem(exported: Exported, row: Row): ExportItem {
  const fields = columnsOf(exported).map(([name, column]) => {
    const value = row[name] === null ? null : column.mapFromDriverValue(row[name]);
    return [NAMES[name] ?? name, datesOf(name, value)];
  });
  return { ...Object.fromEntries(fields), ...(row.personal as object), kind: exported.kind };
}

/** Columns that the Platform API calls differently, or that would clash with `kind`. */
const NAMES: Record<string, string> = { subscriptionId: "webhookId", kind: "about" };

const TIME = /^(at|until)$|(At|Since|Until|Through)$/;

/** A column's value, with Unix milliseconds turned into ISO 8601. */
function datesOf(name: string, value: unknown): Json {
  if (typeof value === "number" && TIME.test(name)) return isoTime(value);
  if (name !== "lastAttempt" || value === null) return value as Json;
  const { at, ...attempt } = value as LastAttempt;
  return { at: isoTime(at), ...attempt };
}

function encodePlace(workspaceId: string, { part, after }: Place): string {
  return encodeValues(EXPORT_LIST, [workspaceId, part, ...(after ?? [])]);
}

/** @throws InputError for a cursor that is not from this export. */
function parsePlace(workspaceId: string, cursor: string | null): Place {
  if (cursor === null) return { part: 0, after: null };
  const [workspace, part, ...after] = decodeValues(EXPORT_LIST, cursor) ?? [];
  const { position } = PARTS[part as number] ?? {};
  const isWhole = after.length === 0 || after.length === position?.length;
  if (workspace !== workspaceId || !position || !isWhole)
    throw new InputError("cursor", "is not a cursor of this workspace's export");
  return { part: part as number, after: after.length === 0 ? null : (after as string[]) };
}
