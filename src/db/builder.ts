import { bindIfParam, Column, getTableColumns, is, type Placeholder, SQL, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/d1";
import type { SelectedFields, SQLiteTable } from "drizzle-orm/sqlite-core";

/* Builds SQL that Drizzle cannot build itself, above all with rows that are passed as JSON. */

const NO_DATABASE = {
  prepare: () => ({
    bind() {
      throw new Error("this query has no database: pass it to `commit` or `query`");
    },
  }),
};

/** Drizzle without a database: builds queries for `commit`, `query` and `prepared` to execute. */
export const qb = drizzle(NO_DATABASE as never);

/** Aliases each field to its name, for joins in which two columns have the same name (`checkNames` in client.ts). */
export function aliasFields<F extends SelectedFields>(fields: F): F {
  const entries = Object.entries(fields).map(([name, field]) => [name, nameField(field, name)]);
  return Object.fromEntries(entries) as F;
}

function nameField(field: unknown, name: string): unknown {
  if (is(field, Column)) return sql`${field}`.mapWith(field).as(name);
  return is(field, SQL) ? field.as(name) : field;
}

/** Returns the columns of a table by name, without those in `names`. */
export function omitColumns<T extends SQLiteTable, K extends keyof T["_"]["columns"] & string>(
  table: T,
  ...names: K[]
) {
  const columns = Object.entries(getTableColumns(table)).filter(
    ([name]) => !(names as string[]).includes(name),
  );
  return Object.fromEntries(columns) as Omit<T["_"]["columns"], K>;
}

export type Assigned<T extends SQLiteTable> = {
  [K in keyof T["$inferInsert"]]?: T["$inferInsert"][K] | SQL | Column | Placeholder;
};

/**
 * Builds an `INSERT … SELECT` with a value for each column. A column that is not named gets its default.
 *
 * @param source the query from its `FROM` clause on.
 */
export function insertFrom<T extends SQLiteTable>(table: T, values: Assigned<T>, source: SQL) {
  const named: Record<string, unknown> = values;
  const selected = Object.entries<Column>(getTableColumns(table)).map(
    ([name, column]) => sql`${bindIfParam(named[name] ?? column.default ?? null, column)}`,
  );
  return qb.insert(table).select(sql`SELECT ${commaList(selected)} ${source}`);
}

/** Returns the name of the field that has a column. */
export function fieldOf(column: Column): string {
  const columns = Object.entries<Column>(getTableColumns(column.table));
  return columns.find(([, own]) => own === column)?.[0] as string;
}

/** SQL: columns or expressions, separated by commas. */
export function commaList(parts: (Column | SQL)[]): SQL {
  return sql.join(parts, sql`, `);
}

/** Maps each column to a value, such as the result of `excluded` or `fromJson`. */
export function mapColumns<T extends SQLiteTable, K extends keyof T["$inferInsert"] & string>(
  table: T,
  names: readonly K[],
  toValue: (column: Column, name: string) => SQL,
) {
  const columns: Record<string, Column> = getTableColumns(table);
  const values = names.map((name) => [name, toValue(columns[name] as Column, name)]);
  return Object.fromEntries(values) as Record<K, SQL>;
}

/** SQL expression: the value of a column in a row of `json_each` that has an object. */
export function fromJson(row: string) {
  return (column: Column, name: string) => {
    const value = sql.raw(`${row}.value->>'${name}'`);
    return isBytes(column) ? sql`unhex(${value})` : value;
  };
}

/** SQL expression: the value of a column in JSON, for `fromJson`; bytes become hexadecimal. */
export function toJsonValue(column: Column): SQL {
  return isBytes(column) ? sql`iif(${column} IS NULL, NULL, hex(${column}))` : sql`${column}`;
}

const isBytes = (column: Column) => column.getSQLType() === "blob";

/** SQL expression for `ON CONFLICT … DO UPDATE`: the value of a column in the row that was not inserted. */
export function excluded(column: Column): SQL {
  return sql`excluded.${unqualified(column)}`;
}

/** SQL condition like Drizzle's `inArray`, for any number of values, because D1 binds at most 100 parameters. */
export function inJson(column: Column, values: readonly string[]): SQL {
  return sql`${column} IN (SELECT value FROM json_each(${JSON.stringify(values)}))`;
}

/** SQL: a column without the name of its table, as on the left-hand side of an assignment. */
export function unqualified(column: Column): SQL {
  return sql`${sql.identifier(column.name)}`;
}

/** Decodes a `json_group_array` of strings; for `mapWith`. */
export function toTexts(value: unknown): string[] {
  return JSON.parse(value as string);
}
