import { and, type Column, eq, getTableName, type SQL, sql } from "drizzle-orm";
import { commaList, qb, toJsonValue } from "../db/builder.ts";
import { readAs, type Statements } from "../db/client.ts";
import { type ChildTable, isLinked, type OwnedTable } from "./table-registry.ts";

/** The position of a row in the order of its table, within its workspace. */
export type RowPosition = (string | number)[];

/** Returns the FROM and WHERE clauses for a workspace's rows of a table; several if no single index has all of them. */
export function sourcesOf(
  { table, through, owner, ranges = [sql`true`] }: OwnedTable,
  workspaceId: string,
): SQL[] {
  const from = through ? sql`${through} CROSS JOIN ${table}` : sql`${table}`;
  return ranges.map((range) => sql`${from} WHERE ${and(eq(owner, workspaceId), range)}`);
}

/**
 * Estimates how many rows a workspace has in these tables. Deliveries are counted in the `owed` lists of their events,
 * because reading two million rows keeps the database busy for seconds.
 */
export function countRows(tables: OwnedTable[], workspaceId: string): Statements<number> {
  const counts = tables.flatMap((owned) => {
    const { through, owner, countedBy } = owned;
    if (through && countedBy)
      return sql`(SELECT coalesce(sum(${countedBy}), 0) FROM ${through} WHERE ${eq(owner, workspaceId)})`;
    return sourcesOf(owned, workspaceId).map((source) => sql`(SELECT count(*) FROM ${source})`);
  });
  // Drizzle cannot select without a table.
  const counted = qb.all<{ rows: number }>(sql`SELECT ${sql.join(counts, sql` + `)} AS rows`);
  return readAs(counted, ([found]) => found?.rows ?? 0);
}

/**
 * Selects a workspace's rows of a table in order, each with its position for `rowPosition`.
 *
 * @param selected the columns to select, with their names.
 * @param condition SQL that is added to the WHERE clause.
 */
export function selectRows(
  owned: OwnedTable,
  workspaceId: string,
  selected: SQL[],
  limit: number,
  condition: SQL,
): SQL {
  const names = positionNames(owned);
  const places = owned.order.map((column, i) => sql`${column} AS ${names[i]}`);
  // Raw SQL is needed, because the table and its columns vary.
  const selects = sourcesOf(owned, workspaceId).map(
    (source) => sql`SELECT ${commaList([...selected, ...places])} FROM ${source} ${condition}`,
  );
  return sql`${sql.join(selects, sql` UNION ALL `)} ORDER BY ${commaList(names)} LIMIT ${limit}`;
}

/** SQL condition for `selectRows`: the row comes after a position, if there is one. */
export function isAfter({ order }: OwnedTable, position: RowPosition | null): SQL {
  if (!position) return sql``;
  return sql`AND (${commaList([...order])}) > (${commaList(position.map((value) => sql`${value}`))})`;
}

/** Returns the names under which `selectRows` selects a position. */
function positionNames({ order }: OwnedTable): SQL[] {
  return order.map((_, i) => sql.raw(`p${i}`));
}

/** Returns the position of a row that `selectRows` has selected. */
export function rowPosition({ order }: OwnedTable, row: Record<string, unknown>): RowPosition {
  return order.map((_, i) => row[`p${i}`] as string | number);
}

/**
 * SQL expression: the child rows of a row, as a JSON object of lists by the names of their tables.
 *
 * @param columnsOf the columns to include, by name.
 */
export function childrenAsJson(
  children: ChildTable[],
  columnsOf: (child: ChildTable) => [string, Column][],
): SQL {
  const quoted = (name: string) => sql.raw(`'${name}'`);
  const lists = children.flatMap((child) => {
    const fields = columnsOf(child).flatMap(([name, column]) => [
      quoted(name),
      toJsonValue(column),
    ]);
    const rows = sql`SELECT json_group_array(json_object(${commaList(fields)}))
      FROM ${child.table} WHERE ${isLinked(child)}`;
    return [quoted(getTableName(child.table)), sql`json((${rows}))`];
  });
  return sql`json_object(${commaList(lists)})`;
}
