import { type Column, getTableColumns, getTableName, type SQL, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { bare, fromJson, list, qb, toJsonValue } from "../../db/builder.ts";
import { inOrder, jsonParameters, readAs, type Statements } from "../../db/client.ts";
import { type ChildTable, isLinked, MOVED, type OwnedTable } from "../manifest.ts";
import {
  childrenAsJson,
  isAfter,
  type Position,
  positionNames,
  positionOf,
  selectRows,
  sourcesOf,
} from "../rows.ts";

/** Maximum rows of a workspace that are copied to another database in one step, and maximum bytes. */
const COPIED_AT_ONCE = 1_000;
const COPIED_BYTES_AT_ONCE = 1_000_000;

/*
 * Copying the rows of a workspace from one database, the source, to another, the target: read as they
 * are, passed on as JSON, and written unchanged. Child rows are copied with the rows they belong to.
 */

/** A row by field name, as stored, and its child rows by the names of their tables. */
type CopiedRow = Record<string, unknown> & { children: Record<string, object[]> };

/** Rows of one table, in the order in which they are copied. */
export interface Chunk {
  rows: CopiedRow[];
  /** Where the next chunk begins; null after the last one of the table. */
  next: Position | null;
}

const columnsOf = ({ table }: { table: SQLiteTable }) =>
  Object.entries<Column>(getTableColumns(table));

/** How many rows of a workspace are to be copied, without child rows. */
export function countRows(workspaceId: string): Statements<number> {
  const sources = MOVED.flatMap((owned) => sourcesOf(owned, workspaceId));
  const counts = sources.map((source) => sql`(SELECT count(*) FROM ${source})`);
  const counted = qb.all<{ rows: number }>(sql`SELECT ${sql.join(counts, sql` + `)} AS rows`);
  return readAs(counted, ([found]) => found?.rows ?? 0);
}

/** Reads the next chunk: as many rows of a table as fit, and always the first. */
export function findChunk(
  workspaceId: string,
  owned: OwnedTable,
  after: Position | null,
): Statements<Chunk> {
  const own = columnsOf(owned).map(
    ([name, column]) => sql`${toJsonValue(column)} AS ${sql.identifier(name)}`,
  );
  const children = sql`${childrenAsJson(owned.children, columnsOf)} AS children`;
  const selected = [...own, children, sql`${weightOf(owned)} AS weight`];
  const next = selectRows(owned, workspaceId, selected, COPIED_AT_ONCE, isAfter(owned, after));
  const order = list(positionNames(owned));
  const chunk = sql`SELECT * FROM (
      SELECT *, sum(weight) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) AS total FROM (${next}))
    WHERE total - weight < ${COPIED_BYTES_AT_ONCE} ORDER BY ${order}`;
  return readAs(qb.all<Record<string, unknown> & { total: number }>(chunk), (found) => {
    const last = found.at(-1);
    const isFull = found.length === COPIED_AT_ONCE || (last?.total ?? 0) >= COPIED_BYTES_AT_ONCE;
    return { next: last && isFull ? positionOf(owned, last) : null, rows: found.map(toCopied) };
  });
}

/** SQL expression: the approximate size of a row and its child rows as JSON, in bytes. */
function weightOf({ table, children }: OwnedTable): SQL {
  const own = (columns: [string, Column][]) => {
    const long = columns.filter(([, column]) => ["text", "blob"].includes(column.getSQLType()));
    const sizes = long.map(([, column]) => sql`coalesce(2 * octet_length(${column}), 0)`);
    return sql.join([sql`100`, ...sizes], sql` + `);
  };
  const inner = children.map(
    (child) =>
      sql`coalesce((SELECT sum(${own(columnsOf(child))}) FROM ${child.table} WHERE ${isLinked(child)}), 0)`,
  );
  return sql.join([own(columnsOf({ table })), ...inner], sql` + `);
}

function toCopied({ children, ...row }: Record<string, unknown>): CopiedRow {
  return { ...row, children: JSON.parse(children as string) };
}

/** Inserts copied rows of a table, unless they are there, while `isArriving`, an SQL condition. */
export function insertRows(
  owned: OwnedTable,
  copied: CopiedRow[],
  isArriving: SQL,
): Statements<unknown> {
  return inOrder(
    jsonParameters(copied).map((json) => {
      const rows = sql`FROM json_each(${json}) AS r`;
      const childrenOf = ({ table }: ChildTable) =>
        sql`${rows}, json_each(r.value, ${sql.raw(`'$.children.${getTableName(table)}'`)}) AS c`;
      return inOrder([
        insertFromJson(owned, "r", rows, isArriving),
        ...owned.children.map((child) => insertFromJson(child, "c", childrenOf(child), isArriving)),
      ]);
    }),
  );
}

function insertFromJson(of: { table: SQLiteTable }, row: string, source: SQL, condition: SQL): SQL {
  const columns = columnsOf(of);
  return sql`INSERT INTO ${of.table} (${list(columns.map(([, column]) => bare(column)))})
    SELECT ${list(columns.map(([name, column]) => fromJson(row)(column, name)))} ${source}
    WHERE ${condition} ON CONFLICT DO NOTHING`;
}
