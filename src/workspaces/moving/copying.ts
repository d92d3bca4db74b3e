import { type Column, getTableColumns, getTableName, type SQL, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { commaList, fromJson, qb, toJsonValue, unqualified } from "../../db/builder.ts";
import { jsonParameters, readAs, type Statements, transaction } from "../../db/client.ts";
import { childrenAsJson, isAfter, type Position, positionOf, selectRows } from "../rows.ts";
import type { ChildTable, OwnedTable } from "../table-registry.ts";

/** Maximum rows that are copied at once. A Worker has memory for as many of the largest, as JSON. */
const COPIED_AT_ONCE = 250;

/*
 * Copying the rows of a workspace from one database, the source, to another, the target: read as they
 * are, passed on as JSON, and written unchanged. Child rows are copied with the rows they belong to.
 */

/** A row by field name, as stored, and in `children` its child rows, as `childrenAsJson` returns them. */
type CopiedRow = Record<string, unknown>;

/** Rows of one table, in the order in which they are copied. */
export interface Chunk {
  rows: CopiedRow[];
  /** Where the next chunk begins; null after the last one of the table. */
  next: Position | null;
}

const columnsOf = ({ table }: { table: SQLiteTable }) =>
  Object.entries<Column>(getTableColumns(table));

/** Reads the next chunk. */
export function findChunk(
  workspaceId: string,
  owned: OwnedTable,
  after: Position | null,
): Statements<Chunk> {
  const own = columnsOf(owned).map(
    ([name, column]) => sql`${toJsonValue(column)} AS ${sql.identifier(name)}`,
  );
  const children = sql`${childrenAsJson(owned.children, columnsOf)} AS children`;
  const isNext = isAfter(owned, after);
  const chunk = selectRows(owned, workspaceId, [...own, children], COPIED_AT_ONCE, isNext);
  return readAs(qb.all<CopiedRow>(chunk), (found) => {
    const last = found.at(COPIED_AT_ONCE - 1);
    return { next: last ? positionOf(owned, last) : null, rows: found };
  });
}

/** Inserts copied rows of a table, unless they are there, while `isArriving`, an SQL condition. */
export function insertRows(
  owned: OwnedTable,
  copied: CopiedRow[],
  isArriving: SQL,
): Statements<unknown> {
  return transaction(
    jsonParameters(copied).map((json) => {
      const rows = sql`FROM json_each(${json}) AS r`;
      const childrenOf = ({ table }: ChildTable) =>
        sql`${rows}, json_each(r.value->>'children', ${sql.raw(`'$.${getTableName(table)}'`)}) AS c`;
      return transaction([
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
