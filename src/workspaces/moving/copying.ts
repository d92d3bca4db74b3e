import {
  and,
  type Column,
  eq,
  getTableColumns,
  getTableName,
  lte,
  type SQL,
  sql,
} from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { bare, excluded, fieldOf, fromJson, list, qb, toJsonValue } from "../../db/builder.ts";
import {
  type Executable,
  inOrder,
  jsonParameters,
  readAs,
  type Statements,
} from "../../db/client.ts";
import { changes } from "../../db/schema.ts";
import { deleteChildren, eraseRows } from "../lifecycle/erase.ts";
import { type ChildTable, isLinked, MOVED, type OwnedTable, referencesOf } from "../manifest.ts";
import {
  childrenAsJson,
  hasKey,
  isAfter,
  type Position,
  positionNames,
  positionOf,
  selectRows,
} from "../rows.ts";

/** Maximum rows of a workspace that are copied to another database in one step, and maximum bytes. */
const COPIED_AT_ONCE = 1_000;
export const COPIED_BYTES_AT_ONCE = 1_000_000;
/** Maximum changes, noted since copying began, that are copied in one step; the same bytes apply. */
const CHANGES_AT_ONCE = 1_000;

/*
 * Copying the rows of a workspace from one database, the source, to another, the target: read as they
 * are, passed on as JSON, and written unchanged. Child rows are copied with the rows they belong to.
 */

/** A row by field name, as stored, and its child rows by the names of their tables. */
type CopiedRow = Record<string, unknown> & { children: Record<string, object[]> };

/** Rows of one table, in the order in which they are copied. */
export interface Chunk {
  rows: CopiedRow[];
  /**
   * Where the next chunk begins; null after the last one of the table. Rows that are inserted later are
   * among the changes.
   */
  next: Position | null;
}

const columnsOf = ({ table }: { table: SQLiteTable }) =>
  Object.entries<Column>(getTableColumns(table));

/** The columns to select for whole rows, with their child rows. */
function wholeRow(owned: OwnedTable): SQL[] {
  const own = columnsOf(owned).map(
    ([name, column]) => sql`${toJsonValue(column)} AS ${sql.identifier(name)}`,
  );
  return [...own, sql`${childrenAsJson(owned.children, columnsOf)} AS children`];
}

function toCopied({ children, ...row }: Record<string, unknown>): CopiedRow {
  return { ...row, children: JSON.parse(children as string) };
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

/** Selects rows from those that `weighed` selects, in order: always the first, and others while they fit. */
function limitBytes(weighed: SQL, order: SQL): SQL {
  return sql`SELECT * FROM (
      SELECT *, sum(weight) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) - weight AS before
      FROM (${weighed}))
    WHERE before < ${COPIED_BYTES_AT_ONCE}`;
}

/** The size of a row, and of all rows before it. */
interface Weighed {
  weight: number;
  before: number;
}

/** Reads the next chunk: as many rows of a table as fit. */
export function findChunk(
  workspaceId: string,
  owned: OwnedTable,
  after: Position | null,
): Statements<Chunk> {
  const { table, key } = owned;
  const keys = key.map((_, i) => sql.raw(`k${i}`));
  const selected = key.map((column, i) => sql`${column} AS ${keys[i]}`);
  const weighed = [...selected, sql`${weightOf(owned)} AS weight`];
  const next = selectRows(owned, workspaceId, weighed, COPIED_AT_ONCE, isAfter(owned, after));
  const order = list(positionNames(owned));
  // Whole rows only of those that fit: the others may be large.
  const chunk = sql`SELECT fits.*, ${list(wholeRow(owned))} FROM (${limitBytes(next, order)}) AS fits
    CROSS JOIN ${table} ON (${list(key)}) = (${list(keys)}) ORDER BY ${order}`;
  return readAs(qb.all<Record<string, unknown> & Weighed>(chunk), (found) => {
    const last = found.at(-1);
    const isFull =
      found.length === COPIED_AT_ONCE ||
      (last && last.before + last.weight >= COPIED_BYTES_AT_ONCE);
    return { next: last && isFull ? positionOf(owned, last) : null, rows: found.map(toCopied) };
  });
}

type Key = (string | number)[];

/** Rows written since copying began, in their current state. */
export interface Changes {
  /** Of each table, the rows that exist, and the keys of those that no longer do. */
  tables: { owned: OwnedTable; rows: CopiedRow[]; gone: Key[] }[];
  /** The number of the last change included. */
  through: number;
  /** Whether these were all changes. */
  isAll: boolean;
}

function keysOf({ key }: OwnedTable, rows: CopiedRow[]): Key[] {
  const fields = key.map(fieldOf);
  return rows.map((row) => fields.map((field) => row[field]) as Key);
}

/** Reads the oldest changes since copying began, in one state of the database; null if there are none. */
export function findChanges(workspaceId: string): Statements<Changes | null> {
  const isOwn = sql`${changes.workspaceId} = ${workspaceId}`;
  const notedKey = ({ key }: OwnedTable) =>
    list(key.map((_, i) => sql`${changes.key}->>${sql.raw(String(i))}`));
  const weights = MOVED.map(
    (owned) => sql`WHEN ${owned.kind} THEN (SELECT ${weightOf(owned)} FROM ${owned.table}
      WHERE (${list(owned.key)}) = (${notedKey(owned)}))`,
  );
  const weighed = sql`SELECT ${changes.number} AS number,
      coalesce(CASE ${changes.kind} ${sql.join(weights, sql` `)} END, 0) AS weight
    FROM ${changes} WHERE ${isOwn} ORDER BY ${changes.number} LIMIT ${CHANGES_AT_ONCE}`;
  const first = sql`SELECT number FROM (${limitBytes(weighed, sql`number`)})`;
  const noted = sql`FROM ${changes} WHERE ${isOwn} AND ${changes.number} IN (${first})`;
  const statements = inOrder([
    qb.all<{ kind: string; key: string; number: number; last: number }>(
      sql`SELECT ${changes.kind} AS kind, ${changes.key} AS key, max(${changes.number}) AS number,
          (SELECT max(${changes.number}) FROM ${changes} WHERE ${isOwn}) AS last
        ${noted} GROUP BY 1, 2`,
    ),
    inOrder(
      MOVED.map((owned) =>
        qb.all<Record<string, unknown>>(
          sql`SELECT ${list(wholeRow(owned))} FROM ${owned.table} WHERE (${list(owned.key)}) IN (
            SELECT ${notedKey(owned)} ${noted} AND ${changes.kind} = ${owned.kind})`,
        ),
      ),
    ),
  ]);
  return readAs(statements, ([noted, found]) => {
    const [change] = noted;
    if (!change) return null;
    const tables = MOVED.map((owned, i) => {
      const rows = found[i]?.map(toCopied) ?? [];
      const existing = new Set(keysOf(owned, rows).map(String));
      const keys = noted
        .filter(({ kind }) => kind === owned.kind)
        .map(({ key }) => JSON.parse(key) as Key);
      return { owned, rows, gone: keys.filter((key) => !existing.has(String(key))) };
    });
    const through = Math.max(...noted.map(({ number }) => number));
    return { tables, through, isAll: through === change.last };
  });
}

/**
 * Upserts copied rows of a table. A row that refers to a row that the target does not have yet is left
 * out: both are among the changes, which follow in order.
 */
export function upsertRows(owned: OwnedTable, copied: CopiedRow[]): Statements<unknown> {
  const { table, key, children } = owned;
  // Without a primary key that is only a number: each database assigns its own.
  const own = columnsOf({ table }).filter(([, column]) => !column.primary || key.includes(column));
  const kept = own.filter(([, column]) => !key.includes(column));
  const refersToCopied = referencesOf(table).map(({ column, to, in: other }) => {
    const value = sql.raw(`r.value->>'${fieldOf(column)}'`);
    return sql`(${value} IS NULL OR EXISTS (SELECT 1 FROM ${other} WHERE ${to} = ${value}))`;
  });
  return inOrder(
    jsonParameters(copied).map((json) => {
      const source = sql`FROM json_each(${json}) AS r`;
      return inOrder([
        // OR REPLACE: a row in the way has one of its unique keys, so it has changed, too, and follows.
        sql`INSERT OR REPLACE INTO ${table} (${list(own.map(([, column]) => bare(column)))})
          SELECT ${list(own.map(([name, column]) => fromJson("r")(column, name)))} ${source}
          WHERE ${sql.join([sql`true`, ...refersToCopied], sql` AND `)}
          ON CONFLICT (${list(key.map(bare))}) DO UPDATE
          SET ${list(kept.map(([, column]) => sql`${bare(column)} = ${excluded(column)}`))}`,
        inOrder(children.map((child) => insertChildren(child, owned, source))),
      ]);
    }),
  );
}

/** Inserts the child rows of copied rows that the target does not have. */
function insertChildren(child: ChildTable, { table, key }: OwnedTable, source: SQL) {
  const columns = columnsOf(child);
  const values = columns.map(([name, column]) => {
    const link = child.links[name];
    if (!link?.primary || key.includes(link)) return fromJson("c")(column, name);
    // The number that its parent row has in the target.
    const ofParent = key.map((column) => sql.raw(`r.value->>'${fieldOf(column)}'`));
    return sql`(SELECT ${link} FROM ${table} WHERE (${list(key)}) = (${list(ofParent)}))`;
  });
  const path = sql.raw(`'$.children.${getTableName(child.table)}'`);
  return sql`INSERT INTO ${child.table} (${list(columns.map(([, column]) => bare(column)))})
      SELECT ${list(values)} ${source}, json_each(r.value, ${path}) AS c
      WHERE true ON CONFLICT DO NOTHING`;
}

/** Deletes the changes up to a number, which have been applied. */
export function deleteChanges(workspaceId: string, through: number): Executable {
  return qb
    .delete(changes)
    .where(and(eq(changes.workspaceId, workspaceId), lte(changes.number, through)));
}

/** Applies changes: upserts the rows that exist, and deletes those that no longer do. */
export function applyChanges({ tables }: Changes): Statements<unknown> {
  const written = tables.filter(({ rows }) => rows.length > 0);
  const erased = tables.filter(({ gone }) => gone.length > 0);
  return inOrder([
    // Child rows are deleted and written again, because some may no longer exist.
    ...written.map(({ owned, rows }) => deleteChildren(owned, hasKey(owned, keysOf(owned, rows)))),
    ...written.map(({ owned, rows }) => upsertRows(owned, rows)),
    ...erased.map(({ owned, gone }) => eraseRows(owned, hasKey(owned, gone))).reverse(),
  ]);
}
