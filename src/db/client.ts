import { DrizzleQueryError, fillPlaceholders, type SQL } from "drizzle-orm";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import { SQLiteAsyncDialect } from "drizzle-orm/sqlite-core";

/** What Drizzle and `commit` need of D1: a binding has it, and a session. */
export type D1Client = Pick<D1Database, "prepare" | "batch">;
export type Database = DrizzleD1Database & { $client: D1Client };
/** A statement that its caller commits, alone or with others in one transaction. */
export type Statement = SQL;

const encoder = new TextEncoder();
const dialect = new SQLiteAsyncDialect();

/** Drizzle over a D1 binding, or a session of one. */
export function openDatabase(client: D1Client): Database {
  return drizzle(client as D1Database);
}

const TRANSIENT =
  /network connection lost|storage caused object to be reset|reset because its code was updated|internal error|timed out|overloaded/i;
const TRIES = 4;

/**
 * Commits the statements as one transaction and gives their results in order. Transient failures of
 * D1 are retried, with growing random waits, although the lost try may have been committed: every
 * statement must be one that can be applied twice, or `tries` be 1.
 */
export async function commit(
  { $client }: Database,
  statements: Statement[],
  tries = TRIES,
): Promise<D1Result[]> {
  // Not `db.batch`, which refuses raw statements that have parameters.
  const prepared = statements.map((statement) => {
    const { sql, params } = dialect.sqlToQuery(statement);
    return $client.prepare(sql).bind(...params);
  });
  return retrying(() => $client.batch(prepared), tries);
}

/** Runs an idempotent query anew while D1 fails in passing. */
export async function retrying<T>(query: () => PromiseLike<T>, tries = TRIES): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await query();
    } catch (failure) {
      const error = databaseError(failure);
      if (attempt === tries || !isTransient(error)) throw error;
      const waitMs = 50 * 2 ** attempt * (0.5 + Math.random());
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

/** The database's own error, without Drizzle's around it, whose message holds the parameters. */
function databaseError(error: unknown): unknown {
  return error instanceof DrizzleQueryError && error.cause ? error.cause : error;
}

/** Whether the database failed in passing, so that the same may succeed later. */
export function isTransient(error: unknown): boolean {
  return error instanceof Error && TRANSIENT.test(error.message);
}

/**
 * A query whose text is made once, when it is first run; `sql.placeholder` stands where its values go.
 */
export function prepared<Row>(query: SQL) {
  let made: { sql: string; params: unknown[] } | undefined;
  return async ({ $client }: Database, values: Record<string, unknown>): Promise<Row[]> => {
    made ??= dialect.sqlToQuery(query);
    const { results } = await $client
      .prepare(made.sql)
      .bind(...fillPlaceholders(made.params, values))
      .all<Row>();
    return results;
  };
}

/** How many rows a committed write changed. */
export function changes(result: D1Result | undefined): number {
  return result?.meta.changes ?? 0;
}

/** The rows that a committed query gave. */
export function rowsOf<Row>(result: D1Result | undefined): Row[] {
  return (result?.results ?? []) as Row[];
}

/** D1 binds texts of at most 2,000,000 bytes. */
const JSON_PARAMETER_MAX_BYTES = 1_950_000;

/**
 * `rows` as JSON texts for `json_each(?)`, each short enough for one bound parameter: one text
 * however many rows, unless they are very large.
 */
export function jsonParameters(rows: readonly unknown[]): string[] {
  const chunks: string[][] = [];
  let size = Number.POSITIVE_INFINITY;
  for (const row of rows) {
    const text = JSON.stringify(row);
    const bytes = encoder.encode(text).length + 1;
    if (size + bytes > JSON_PARAMETER_MAX_BYTES) {
      chunks.push([]);
      size = 0;
    }
    chunks.at(-1)?.push(text);
    size += bytes;
  }
  return chunks.map((texts) => `[${texts.join()}]`);
}
