import { type Column, getTableColumns, getTableName, type SQL, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { commaList, fromJson, qb, toJsonValue, unqualified } from "../db/builder.ts";
import { combine, jsonParameters, readAs, type Statements } from "../db/client.ts";
import {
  childrenAsJson,
  isAfter,
  type RowPosition,
  rowPosition,
  selectRows,
} from "../workspaces/rows.ts";
import { type ChildTable, isLinked, type OwnedTable } from "../workspaces/table-registry.ts";

/*
 * Copies the rows of a workspace from one database, the source, to another, the target. Rows are read as JSON and
 * written unchanged. Child rows are copied with the rows that they belong to.
 */

/** Maximum rows of a chunk, without their child rows. */
const CHUNK_ROWS_MAX = 250;
/**
 * Maximum bytes of a chunk, including child rows, unless a single row has more. A Worker has 128 MB for the response of
 * D1, the rows that it is parsed to, and the JSON that is written.
 */
export const CHUNK_BYTES_MAX = 4_000_000;

/** A row by field names, with its child rows in `children`, in the form of `childrenAsJson`. */
type CopiedRow = Record<string, unknown>;

/** A chunk: the next rows of a table to copy. */
interface Chunk {
  /** The number of rows. */
  rows: number;
  /** Where the next chunk begins; null after the last chunk of the table. */
  next: RowPosition | null;
}

const columnsOf = ({ table }: { table: SQLiteTable }) =>
  Object.entries<Column>(getTableColumns(table));

/** Measures the next rows of a table, without reading them, and finds how many fit into a chunk. */
export function measureChunk(
  workspaceId: string,
  owned: OwnedTable,
  after: RowPosition | null,
): Statements<Chunk> {
  const ofChildren = owned.children.map(
    (child) =>
      sql`(SELECT coalesce(sum(${bytesOf(child)}), 0) FROM ${child.table} WHERE ${isLinked(child)})`,
  );
  const bytes = sql`${sql.join([bytesOf(owned), ...ofChildren], sql` + `)} AS bytes`;
  const isNext = isAfter(owned, after);
  const measured = selectRows(owned, workspaceId, [bytes], CHUNK_ROWS_MAX, isNext);
  return readAs(qb.all<{ bytes: number }>(measured), (found) => {
    let total = 0;
    const tooMany = found.findIndex((row, i) => {
      total += row.bytes;
      return i > 0 && total > CHUNK_BYTES_MAX;
    });
    const rows = tooMany < 0 ? found.length : tooMany;
    const isLast = tooMany < 0 && found.length < CHUNK_ROWS_MAX;
    const last = found[rows - 1];
    return { rows, next: isLast || !last ? null : rowPosition(owned, last) };
  });
}

/** SQL expression: the approximate size of a row as JSON. */
function bytesOf(of: { table: SQLiteTable }): SQL {
  const sizes = columnsOf(of).map(([name, column]) => {
    // Bytes become hexadecimal, which doubles their size.
    const factor = sql.raw(column.getSQLType() === "blob" ? "2" : "1");
    return sql`coalesce(octet_length(${column}), 4) * ${factor} + ${sql.raw(String(name.length + 6))}`;
  });
  return sql`(${sql.join(sizes, sql` + `)})`;
}

/** Reads the rows of a chunk that `measureChunk` has measured. */
export function selectChunk(
  workspaceId: string,
  owned: OwnedTable,
  after: RowPosition | null,
  rows: number,
): Statements<CopiedRow[]> {
  const own = columnsOf(owned).map(
    ([name, column]) => sql`${toJsonValue(column)} AS ${sql.identifier(name)}`,
  );
  const children = sql`${childrenAsJson(owned.children, columnsOf)} AS children`;
  const isNext = isAfter(owned, after);
  const selected = selectRows(owned, workspaceId, [...own, children], rows, isNext);
  return readAs(qb.all<CopiedRow>(selected), (found) => found);
}

/** Inserts copied rows of a table that are not stored yet. @param isArriving SQL condition for the insertion. */
export function insertRows(
  owned: OwnedTable,
  copied: CopiedRow[],
  isArriving: SQL,
): Statements<unknown> {
  return combine(
    jsonParameters(copied).map((json) => {
      const rows = sql`FROM json_each(${json}) AS r`;
      const childrenOf = ({ table }: ChildTable) =>
        sql`${rows}, json_each(r.value->>'children', ${sql.raw(`'$.${getTableName(table)}'`)}) AS c`;
      return combine([
        insertFromJson(owned, "r", rows, isArriving),
        ...owned.children.map((child) => insertFromJson(child, "c", childrenOf(child), isArriving)),
      ]);
    }),
  );
}

function insertFromJson(of: { table: SQLiteTable }, row: string, source: SQL, condition: SQL): SQL {
  const columns = columnsOf(of);
  return sql`INSERT INTO ${of.table} (${commaList(columns.map(([, column]) => unqualified(column)))})
    SELECT ${commaList(columns.map(([name, column]) => fromJson(row)(column, name)))} ${source}
    WHERE ${condition} ON CONFLICT DO NOTHING`;
}
