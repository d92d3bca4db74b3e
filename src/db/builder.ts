import { Column, type DriverValueDecoder, getTableColumns, is, SQL, sql } from "drizzle-orm";
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

/**
 * An `INSERT` of what a query finds, each column beside its value: Drizzle's own takes whole rows of a
 * query of its own.
 *
 * @param source the query, from its `FROM` on, and what follows it.
 */
export function insertFrom<T extends SQLiteTable>(
  table: T,
  values: { [K in keyof T["$inferInsert"]]?: SQL },
  source: SQL,
): SQL {
  const columns = getTableColumns(table);
  const names = Object.keys(values).map((key) => bare(columns[key] as Column));
  const listed = sql.join(Object.values<SQL | undefined>(values), sql`, `);
  return sql`INSERT INTO ${table} (${sql.join(names, sql`, `)}) SELECT ${listed} ${source}`;
}

/** A column without its table, as stands on the left of what is set. */
export function bare(column: Column): SQL {
  return sql`${sql.identifier(column.name)}`;
}

/** Reads what `json_group_array` makes of texts; for `mapWith`. */
export function toTexts(value: unknown): string[] {
  return JSON.parse(value as string);
}

/** In an `ON CONFLICT … DO UPDATE`, what the row that was refused has in this column. */
export function excluded(column: Column): SQL {
  return sql`excluded.${bare(column)}`;
}

/** The assignments of a `SET`, each to its column. */
export function assign<T extends SQLiteTable>(
  table: T,
  values: { [K in keyof T["$inferInsert"]]?: SQL },
): SQL {
  const columns = getTableColumns(table);
  const assignments = Object.entries<SQL | undefined>(values).map(
    ([key, value]) => sql`${bare(columns[key] as Column)} = ${value}`,
  );
  return sql.join(assignments, sql`, `);
}
