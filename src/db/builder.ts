import {
  bindIfParam,
  Column,
  type DriverValueDecoder,
  getTableColumns,
  is,
  type Placeholder,
  SQL,
  sql,
} from "drizzle-orm";
import { drizzle } from "drizzle-orm/d1";
import { QueryBuilder, type SelectedFields, type SQLiteTable } from "drizzle-orm/sqlite-core";

/*
 * Drizzle's builders, over no database: they make queries for `rows`, `write` and `prepared`
 * (client.ts), which run them. A builder that is awaited by itself fails.
 */

const queries = new QueryBuilder();
const writes = drizzle({} as D1Database);

export const update = writes.update.bind(writes);
export const deleteFrom = writes.delete.bind(writes);

/**
 * Starts a `SELECT`. Each column comes back under the name of its field: D1 gives the rows of a batch
 * as objects, in which two columns of one name would be one.
 */
export function select<F extends SelectedFields>(fields: F) {
  return queries.select(named(fields));
}

/** The same with `DISTINCT`. */
export function selectDistinct<F extends SelectedFields>(fields: F) {
  return queries.selectDistinct(named(fields));
}

/** Fields that come back under their names, as `select` gives them; for `RETURNING`. */
export function named<F extends SelectedFields>(fields: F): F {
  const entries = Object.entries(fields).map(([name, field]) => [name, nameField(field, name)]);
  return Object.fromEntries(entries) as F;
}

function nameField(field: unknown, name: string): unknown {
  if (is(field, Column)) return sql`${field}`.mapWith(field).as(name);
  if (!is(field, SQL)) return field;
  const { decoder } = field as unknown as { decoder: DriverValueDecoder<unknown, unknown> };
  // Nested: of a query of one table, Drizzle would take the tables off the columns in it.
  return sql`${field}`.mapWith(decoder).as(name);
}

/** What columns are set to: a value as the column takes it, or what SQL makes of others. */
type Assigned<T extends SQLiteTable> = {
  [K in keyof T["$inferInsert"]]?: T["$inferInsert"][K] | SQL | Column | Placeholder;
};

function assignments<T extends SQLiteTable>(table: T, values: Assigned<T>): [SQL, SQL][] {
  const columns = getTableColumns(table);
  return Object.entries<unknown>(values).map(([key, value]) => {
    const column = columns[key] as Column;
    return [bare(column), sql`${bindIfParam(value, column)}`];
  });
}

/**
 * An `INSERT` of what a query finds, each column beside its value: Drizzle's own takes whole rows of a
 * query of its own.
 *
 * @param source the query, from its `FROM` on, and what follows it.
 */
export function insertFrom<T extends SQLiteTable>(table: T, values: Assigned<T>, source: SQL): SQL {
  const pairs = assignments(table, values);
  const names = pairs.map(([name]) => name);
  const listed = pairs.map(([, value]) => value);
  return sql`INSERT INTO ${table} (${list(names)}) SELECT ${list(listed)} ${source}`;
}

/** The assignments of a `SET`, each to its column. */
export function assign<T extends SQLiteTable>(table: T, values: Assigned<T>): SQL {
  return list(assignments(table, values).map(([name, value]) => sql`${name} = ${value}`));
}

/** Columns or expressions, with commas between them. */
export function list(parts: (Column | SQL)[]): SQL {
  return sql.join(parts, sql`, `);
}

/** What some columns are set to, each to its own value: that of `excluded`, or of `fromJson`. */
export function each<T extends SQLiteTable, K extends keyof T["$inferInsert"] & string>(
  table: T,
  names: readonly K[],
  toValue: (column: Column, name: string) => SQL,
) {
  const columns: Record<string, Column> = getTableColumns(table);
  const values = names.map((name) => [name, toValue(columns[name] as Column, name)]);
  return Object.fromEntries(values) as Record<K, SQL>;
}

/** What a row of `json_each`, an object, has under the name of a column. */
export function fromJson(row: string) {
  return (_: Column, name: string) => sql.raw(`${row}.value->>'${name}'`);
}

/** In an `ON CONFLICT … DO UPDATE`, what the row that was refused has in this column. */
export function excluded(column: Column): SQL {
  return sql`excluded.${bare(column)}`;
}

/** A column without its table, as stands on the left of what is set. */
export function bare(column: Column): SQL {
  return sql`${sql.identifier(column.name)}`;
}

/** Reads what `json_group_array` makes of texts; for `mapWith`. */
export function toTexts(value: unknown): string[] {
  return JSON.parse(value as string);
}
