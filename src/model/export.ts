import { type Column, getTableColumns, type SQL, sql } from "drizzle-orm";
import { decodeValues, EXPORT_LIST, encodeValues } from "../contract/cursor.ts";
import type { ExportItem, Json } from "../contract/export.ts";
import { InputError } from "../contract/input-error.ts";
import { EXPORT_PAGE_MAX_BYTES, EXPORT_PAGE_MAX_ITEMS } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { list } from "../db/builder.ts";
import { type Database, query, rows } from "../db/client.ts";
import type { LastAttempt } from "../db/schema.ts";
import { type Exported, PARTS, type Part } from "./export-parts.ts";

/** Where an export goes on. */
interface Place {
  /** The number of the part. */
  part: number;
  /** The position of its last row; null before its first one. */
  after: (string | number)[] | null;
}

/**
 * One page of all that is kept about a workspace, but for secrets. What was there when the first page
 * was read is in one of them, unless it has been deleted; what came since may be.
 *
 * @param db the database that the workspace lives in.
 * @throws InputError for a cursor of another list or workspace.
 */
export async function exportPage(
  db: Database,
  directory: Database,
  workspaceId: string,
  cursor: string | null,
): Promise<{ items: ExportItem[]; nextCursor: string | null }> {
  const items: ExportItem[] = [];
  let bytes = 0;
  let place = readPlace(workspaceId, cursor);
  while (items.length < EXPORT_PAGE_MAX_ITEMS && bytes < EXPORT_PAGE_MAX_BYTES) {
    const part = PARTS[place.part];
    if (!part) return { items, nextCursor: null };
    const source = part.isOfDirectory ? directory : db;
    const found = await readRows(source, part, workspaceId, place.after);
    for (const row of found) {
      const added = toItems(part, row);
      items.push(...added);
      bytes += new TextEncoder().encode(JSON.stringify(added)).length;
    }
    const last = found.at(-1);
    place =
      last && found.length === part.atOnce
        ? { ...place, after: part.position.map((_, i) => last[`p${i}`] as string | number) }
        : { part: place.part + 1, after: null };
  }
  const isOver = place.part === PARTS.length;
  return { items, nextCursor: isOver ? null : writePlace(workspaceId, place) };
}

type Row = Record<string, unknown>;

/** The next rows of a part: its columns, what is nested as JSON text, and its position, `p0`, `p1`. */
function readRows(
  db: Database,
  part: Part,
  workspaceId: string,
  after: Place["after"],
): Promise<Row[]> {
  const { position, nested } = part;
  const names = position.map((_, i) => sql.raw(`p${i}`));
  const selected = [
    ...columnsOf(part).map(([name, column]) => sql`${column} AS ${sql.identifier(name)}`),
    ...(nested ? [sql`${toJson(nested)} AS nested`] : []),
    ...position.map((column, i) => sql`${column} AS ${names[i]}`),
  ];
  const behind = after
    ? sql`AND (${list(position)}) > (${list(after.map((value) => sql`${value}`))})`
    : sql``;
  // Raw: the columns are those of whichever table.
  const selects = part
    .sources(workspaceId)
    .map((source) => sql`SELECT ${list(selected)} FROM ${source} ${behind}`);
  const union = sql.join(selects, sql` UNION ALL `);
  return query(db, rows<Row>(sql`${union} ORDER BY ${list(names)} LIMIT ${part.atOnce}`));
}

/** The columns of a table that are exported, by their names in items. */
function columnsOf({ table, secret = [] }: Exported) {
  const hidden = [...secret, "workspaceId"];
  return Object.entries<Column>(getTableColumns(table)).filter(([name]) => !hidden.includes(name));
}

/** The nested rows, as a list of JSON objects. */
function toJson(nested: Exported & { where: SQL | undefined }): SQL {
  const fields = columnsOf(nested).flatMap(([name, column]) => [sql`${name}`, column]);
  return sql`(SELECT json_group_array(json_object(${list(fields)}))
    FROM ${nested.table} WHERE ${nested.where})`;
}

/** The item of a row, and those of what is nested in it. */
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
  return { ...Object.fromEntries(fields), kind: exported.kind };
}

/** Names of columns that the Platform door has other words for, or that `kind` would hide. */
const NAMES: Record<string, string> = { subscriptionId: "webhookId", kind: "about" };

const TIME = /^(at|until)$|(At|Since|Until|Through)$/;

/** The value of a column, with ISO 8601 for Unix milliseconds. */
function datesOf(name: string, value: unknown): Json {
  if (typeof value === "number" && TIME.test(name)) return isoTime(value);
  if (name !== "lastAttempt" || value === null) return value as Json;
  const { at, ...attempt } = value as LastAttempt;
  return { at: isoTime(at), ...attempt };
}

function writePlace(workspaceId: string, { part, after }: Place): string {
  return encodeValues(EXPORT_LIST, [workspaceId, part, ...(after ?? [])]);
}

/** @throws InputError for a cursor that is none of this export. */
function readPlace(workspaceId: string, cursor: string | null): Place {
  if (cursor === null) return { part: 0, after: null };
  const [workspace, part, ...after] = decodeValues(EXPORT_LIST, cursor) ?? [];
  const { position } = PARTS[part as number] ?? {};
  const isWhole = after.length === 0 || after.length === position?.length;
  if (workspace !== workspaceId || !position || !isWhole)
    throw new InputError("cursor: is no cursor of this workspace's export");
  return { part: part as number, after: after.length === 0 ? null : (after as string[]) };
}
