import { type Column, getTableColumns, getTableName, sql } from "drizzle-orm";
import { decodeValues, encodeValues } from "../contract/cursor.ts";
import { InputError } from "../contract/input.ts";
import { isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { leads } from "../db/schema.ts";
import { decryptPerson, type LeadRow, SEALED } from "../records/leads.ts";
import { toPersonalData } from "../records/person.ts";
import { expectDataKey, sealedDataKeyOf } from "../workspaces/data-keys.ts";
import {
  childrenAsJson,
  isAfter,
  type RowPosition,
  rowPosition,
  selectRows,
} from "../workspaces/rows.ts";
import {
  type ChildTable,
  type ExportKind,
  OWNED,
  type OwnedTable,
} from "../workspaces/table-registry.ts";

/** Rows per query. A page may exceed its limits by this many. */
const ROWS_AT_ONCE = 50;

/** Number of items after which a page of an export reads no more. */
const EXPORT_PAGE_MAX_ITEMS = 1_000;
/** Bytes of JSON after which a page of an export reads no more. */
const EXPORT_PAGE_MAX_BYTES = 1_000_000;

/** A JSON value. Objects are not typed further, because a recursive type would not terminate as an RPC result. */
type Json = string | number | boolean | null | object;

/** One stored row of a workspace; times are ISO 8601. The child rows of a row follow it. */
export interface ExportItem {
  kind: ExportKind;
  [field: string]: Json;
}

interface ExportPosition {
  /** Index into `OWNED`. */
  part: number;
  /** The position of the last row; null before the first. */
  after: RowPosition | null;
}

/**
 * Exports one page of all stored data of a workspace, except secrets. Every row that existed when the first page was
 * read appears on some page, unless it was deleted in the meantime. Newer rows may appear.
 *
 * @param db the database where the workspace lives.
 * @param keys `ENCRYPTION_KEYS`.
 * @throws InputError for a cursor of another list or workspace.
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
  let position = parseCursor(workspaceId, cursor);
  while (items.length < EXPORT_PAGE_MAX_ITEMS && bytes < EXPORT_PAGE_MAX_BYTES) {
    const owned = OWNED[position.part];
    if (!owned) return { items, nextCursor: null };
    const source = owned.isInDirectory ? directory : db;
    const found = await listRows(source, keys, owned, workspaceId, position.after);
    for (const row of found) {
      const added = toItems(owned, row);
      items.push(...added);
      bytes += new TextEncoder().encode(JSON.stringify(added)).length;
    }
    const last = found.at(-1);
    position =
      last && found.length === ROWS_AT_ONCE
        ? { ...position, after: rowPosition(owned, last) }
        : { part: position.part + 1, after: null };
  }
  const isOver = position.part === OWNED.length;
  return { items, nextCursor: isOver ? null : encodeCursor(workspaceId, position) };
}

type Row = Record<string, unknown>;

/** Reads the next rows of a table: its columns, with the child rows of each row as JSON in `children`. */
async function listRows(
  db: Database,
  keys: string,
  owned: OwnedTable,
  workspaceId: string,
  after: ExportPosition["after"],
): Promise<Row[]> {
  const selected = [
    ...columnsOf(owned).map(([name, column]) => sql`${column} AS ${sql.identifier(name)}`),
    sql`${childrenAsJson(owned.children, columnsOf)} AS children`,
    ...(owned.table === leads ? TO_OPEN : []),
  ];
  const behind = isAfter(owned, after);
  const next = selectRows(owned, workspaceId, selected, ROWS_AT_ONCE, behind);
  const found = await query(db, qb.all<Row>(next));
  if (owned.table !== leads) return found;
  const sealed = found as (Row & SealedLead)[];
  const [first] = sealed;
  if (!first) return [];
  const dataKey = await expectDataKey(keys, { workspaceId, ...first });
  return Promise.all(sealed.map((row) => decryptRow(dataKey, row)));
}

/** The columns to select for `decryptRow`. */
const TO_OPEN = [
  sql`${SEALED} AS sealed`,
  sql`${sealedDataKeyOf(leads.workspaceId)} AS "sealedDataKey"`,
];

type SealedLead = Pick<LeadRow, "id" | "sealed"> & { sealedDataKey: string | null };

/** Adds the decrypted personal data to the row of a lead, or a mark if it cannot be decrypted. */
async function decryptRow(dataKey: CryptoKey, row: Row & SealedLead): Promise<Row> {
  const person = await decryptPerson(dataKey, row);
  return { ...row, personal: person ? toPersonalData(person) : { unreadable: true } };
}

/** Lists the exported columns of a table, by the names of the item's fields. */
function columnsOf({ table, secret = [] }: OwnedTable | ChildTable) {
  return Object.entries<Column>(getTableColumns(table)).filter(
    ([name, column]) => name !== "workspaceId" && !secret.includes(column),
  );
}

/** Makes the item of a row, followed by those of its child rows. */
function toItems(owned: OwnedTable, row: Row): ExportItem[] {
  const children: Record<string, Row[]> = JSON.parse(row.children as string);
  const inner = owned.children.flatMap((child) =>
    children[getTableName(child.table)]?.map((one) => toItem(child, one)),
  );
  return [toItem(owned, row), ...inner] as ExportItem[];
}

function toItem(exported: OwnedTable | ChildTable, row: Row): ExportItem {
  const fields = columnsOf(exported).map(([name, column]) => {
    const value = row[name] === null ? null : column.mapFromDriverValue(row[name]);
    return [NAMES[name] ?? name, datesOf(name, value)];
  });
  return { ...Object.fromEntries(fields), ...(row.personal as object), kind: exported.kind };
}

/** The names of columns that differ in the Platform API. */
const NAMES: Record<string, string> = { subscriptionId: "webhookId" };

const TIME = /^(at|since|until|day)$|(At|Since|Until)$/;

/**
 * Converts the value of a column: Unix milliseconds become ISO 8601, and 0, which stands for no time, becomes null. A list stays unchanged,
 * because none has times; the actions of a run are as the platform has written them.
 */
function datesOf(name: string, value: unknown): Json {
  if (typeof value === "number" && TIME.test(name)) return value === 0 ? null : isoTime(value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value as Json;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, datesOf(key, one)]));
}

function encodeCursor(workspaceId: string, { part, after }: ExportPosition): string {
  return encodeValues("export", [workspaceId, part, ...(after ?? [])]);
}

/** @throws InputError for a cursor that is not from this export. */
function parseCursor(workspaceId: string, cursor: string | null): ExportPosition {
  if (cursor === null) return { part: 0, after: null };
  const [workspace, part, ...after] = decodeValues("export", cursor) ?? [];
  const { order } = OWNED[part as number] ?? {};
  const isWhole = after.length === 0 || after.length === order?.length;
  if (workspace !== workspaceId || !order || !isWhole)
    throw new InputError("cursor", "is not a cursor of this workspace's export");
  return { part: part as number, after: after.length === 0 ? null : (after as string[]) };
}
