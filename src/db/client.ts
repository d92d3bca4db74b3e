import { DrizzleQueryError, fillPlaceholders, type SQL } from "drizzle-orm";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import { SQLiteAsyncDialect } from "drizzle-orm/sqlite-core";
import { isRetried } from "./errors.ts";

/** What Drizzle and `commit` need of D1: a binding has it, and a session. */
export type D1Client = Pick<D1Database, "prepare" | "batch">;
export type Database = DrizzleD1Database & { $client: D1Client };
/**
 * One or more statements that the caller commits, alone or with others in one transaction, and how
 * their results are read.
 */
export interface Statements<R> {
  readonly queries: readonly SQL[];
  /** Reads the results of `queries`, in their order. */
  read(results: D1Result[]): R;
}

/** What is read of each of several `Statements`. */
export type ResultsOf<P extends readonly Statements<unknown>[]> = {
  -readonly [K in keyof P]: P[K] extends Statements<infer R> ? R : never;
};

/** A query, read as its rows. */
export function rows<Row>(query: SQL): Statements<Row[]> {
  return { queries: [query], read: ([result]) => (result?.results ?? []) as Row[] };
}

/** A write, read as the number of rows that it changed. */
export function write(query: SQL): Statements<number> {
  return { queries: [query], read: ([result]) => result?.meta.changes ?? 0 };
}

/** Statements in order, each read in its own way. */
export function inOrder<const P extends readonly Statements<unknown>[]>(
  parts: P,
): Statements<ResultsOf<P>> {
  return {
    queries: parts.flatMap(({ queries }) => queries),
    read(results) {
      let start = 0;
      return parts.map(({ queries, read }) => {
        const own = results.slice(start, start + queries.length);
        start += queries.length;
        return read(own);
      }) as ResultsOf<P>;
    },
  };
}

/** The same statements, of which `read` makes something else. */
export function readAs<A, B>(statements: Statements<A>, read: (result: A) => B): Statements<B> {
  return { queries: statements.queries, read: (results) => read(statements.read(results)) };
}

const encoder = new TextEncoder();
const dialect = new SQLiteAsyncDialect();

/** Drizzle over a D1 binding, or a session of one. */
export function openDatabase(client: D1Client): Database {
  return drizzle(client as D1Database);
}

const TRIES = 4;

/**
 * Commits statements as one transaction. Failures of D1 that pass are retried, with growing random
 * waits, although the lost try may have been committed: every statement must be one that can be
 * applied twice, or `tries` be 1, or `commitOnce` do it.
 */
export async function commit<R>(
  { $client }: Database,
  { queries, read }: Statements<R>,
  tries = TRIES,
): Promise<R> {
  // Not `db.batch`, which refuses raw statements that have parameters.
  const prepared = queries.map((query) => {
    const { sql, params } = dialect.sqlToQuery(query);
    return $client.prepare(sql).bind(...params);
  });
  if (prepared.length === 0) return read([]);
  return read(await retrying(() => $client.batch(prepared), tries));
}

/** Runs an idempotent query anew while D1 fails in passing. */
export async function retrying<T>(query: () => PromiseLike<T>, tries = TRIES): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await query();
    } catch (failure) {
      const error = databaseError(failure);
      if (attempt === tries || !isRetried(error)) throw error;
      const waitMs = 50 * 2 ** attempt * (0.5 + Math.random());
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

/** The database's own error, without Drizzle's around it, whose message holds the parameters. */
function databaseError(error: unknown): unknown {
  return error instanceof DrizzleQueryError && error.cause ? error.cause : error;
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
