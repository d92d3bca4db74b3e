import {
  Column,
  type DriverValueDecoder,
  fillPlaceholders,
  is,
  noopDecoder,
  type Query,
  SQL,
  type SQLWrapper,
  sql,
} from "drizzle-orm";
import { SQLiteSelectQueryBuilderBase } from "drizzle-orm/sqlite-core";
import { dialect } from "./builder.ts";
import { isRetryable } from "./errors.ts";

/** The part of D1 that `commit` and `query` use; both a binding and a session have it. */
export type D1Client = Pick<D1Database, "prepare" | "batch">;

/** Where statements run. */
export interface Database {
  readonly $client: D1Client;
}

/**
 * One or more statements, not yet executed, with a function that reads their results. The caller
 * commits them, alone or with others in one transaction.
 */
export interface Statements<R> {
  readonly queries: readonly Query[];
  /** Reads the results of `queries`, which are in the same order. */
  read(results: D1Result[]): R;
}

/** A query from Drizzle's builder; the columns it selects give its rows their type. */
interface TypedQuery<Row> extends SQLWrapper {
  readonly _: { readonly result: Row[]; readonly selectedFields: unknown };
}

/** `Statements`, or a builder's query (read as rows) or write (read as nothing: see `counted`). */
type Part = Statements<unknown> | SQLWrapper;
type ResultOf<P> =
  P extends Statements<infer R> ? R : P extends TypedQuery<infer Row> ? Row[] : undefined;
type ResultsOf<P extends readonly Part[]> = { -readonly [K in keyof P]: ResultOf<P[K]> };

function toStatements(part: Part): Statements<unknown> {
  if ("queries" in part) return part;
  return is(part, SQLiteSelectQueryBuilderBase) ? rows(part) : write(part);
}

/**
 * A query, read as its rows. Raw SQL returns SQLite's own types: strings for JSON, 0 and 1 for
 * booleans.
 */
export function rows<Row>(query: TypedQuery<Row> | SQL): Statements<Row[]> {
  return { queries: [toText(query)], read: rowReader<Row>(query) };
}

/** A row as raw SQL returns it. */
export type Stored<Row> = {
  [K in keyof Row]: Row[K] extends boolean
    ? 0 | 1
    : Row[K] extends string | number | null
      ? Row[K]
      : string | Extract<Row[K], null>;
};

/** A write, read as nothing. */
export function write(query: SQLWrapper): Statements<undefined> {
  return { queries: [toText(query)], read: nothing };
}

/**
 * A write, read as the number of rows it changed. D1's own count includes the rows that triggers
 * write, as they do while a workspace is copied to another database.
 */
export function counted(query: SQLWrapper): Statements<number> {
  return readAs(rows(sql`${query.getSQL()} RETURNING 1`), ({ length }) => length);
}

/**
 * A query whose SQL text is built once, on first use. `sql.placeholder` marks where its values go.
 */
export function prepared<Row>(query: TypedQuery<Row> | SQL) {
  let made: { text: Query; read: Statements<Row[]>["read"] } | undefined;
  return (values: Record<string, unknown>): Statements<Row[]> => {
    made ??= { text: toText(query), read: rowReader<Row>(query) };
    const { sql, params } = made.text;
    return { queries: [{ sql, params: fillPlaceholders(params, values) }], read: made.read };
  };
}

/** Like `prepared`, for a write. */
export function preparedWrite(query: SQLWrapper) {
  let text: Query | undefined;
  return (values: Record<string, unknown>): Statements<undefined> => {
    text ??= toText(query);
    const { sql, params } = text;
    return { queries: [{ sql, params: fillPlaceholders(params, values) }], read: nothing };
  };
}

const nothing = () => undefined;

function toText(query: SQLWrapper): Query {
  const { sql, params } = dialect.sqlToQuery(query.getSQL());
  return { sql, params };
}

/** Reads the rows of a result, decoding those of the builder's queries by column type. */
function rowReader<Row>(query: TypedQuery<Row> | SQL): Statements<Row[]>["read"] {
  const decoders = is(query, SQL) ? [] : decodersOf(query);
  return ([result]) => {
    const found = (result?.results ?? []) as Record<string, unknown>[];
    for (const [name, decoder] of decoders)
      for (const row of found)
        if (row[name] !== null) row[name] = decoder.mapFromDriverValue(row[name]);
    return found as Row[];
  };
}

type Decoder = DriverValueDecoder<unknown, unknown>;

/** Decoders for the fields that SQLite does not return as they are: JSON and booleans. */
function decodersOf(query: SQLWrapper): [string, Decoder][] {
  // `select` has named each field and set its decoder.
  const { selectedFields } = (
    query as unknown as { _: { selectedFields: Record<string, { sql: { decoder: Decoder } }> } }
  )._;
  return Object.entries(selectedFields)
    .map(([name, { sql }]): [string, Decoder] => [name, sql.decoder])
    .filter(([, { mapFromDriverValue }]) => !AS_GIVEN.has(mapFromDriverValue));
}

const AS_GIVEN = new Set([noopDecoder.mapFromDriverValue, Column.prototype.mapFromDriverValue]);

/** Statements in order; the result is a list of their results. */
export function inOrder<const P extends readonly Part[]>(parts: P): Statements<ResultsOf<P>> {
  const made = parts.map(toStatements);
  return {
    queries: made.flatMap(({ queries }) => queries),
    read(results) {
      let start = 0;
      return made.map(({ queries, read }) => {
        const own = results.slice(start, start + queries.length);
        start += queries.length;
        return read(own);
      }) as ResultsOf<P>;
    },
  };
}

/** The same statements, with their result mapped by `read`. */
export function readAs<A, B>(statements: Statements<A>, read: (result: A) => B): Statements<B> {
  return { queries: statements.queries, read: (results) => read(statements.read(results)) };
}

const encoder = new TextEncoder();

/** The database behind a D1 binding or session. */
export function openDatabase($client: D1Client): Database {
  return { $client };
}

const TRIES = 4;

/**
 * Commits statements as one transaction. Transient D1 errors are retried with jittered exponential
 * backoff. The failed try may have been committed, so statements must be safe to apply twice;
 * otherwise set `tries` to 1 or use `commitOnce`.
 */
export async function commit<P extends Part>(
  { $client }: Database,
  part: P,
  tries = TRIES,
): Promise<ResultOf<P>> {
  const { queries, read } = toStatements(part) as Statements<ResultOf<P>>;
  const statements = queries.map(({ sql, params }) => $client.prepare(sql).bind(...params));
  if (statements.length === 0) return read([]);
  return read(await retryTransient(() => $client.batch(statements), tries));
}

/** Runs a single query, retrying transient D1 errors. */
export async function query<P extends Part>({ $client }: Database, one: P): Promise<ResultOf<P>> {
  const { queries, read } = toStatements(one) as Statements<ResultOf<P>>;
  const [{ sql, params }] = queries as [Query];
  const statement = $client.prepare(sql).bind(...params);
  return read([await retryTransient(() => statement.all())]);
}

/** Runs an idempotent query, retrying transient D1 errors. */
export async function retryTransient<T>(query: () => PromiseLike<T>, tries = TRIES): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await query();
    } catch (error) {
      if (attempt === tries || !isRetryable(error)) throw error;
      const waitMs = 50 * 2 ** attempt * (0.5 + Math.random());
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

/** D1 binds strings of at most 2,000,000 bytes. */
const JSON_PARAMETER_MAX_BYTES = 1_950_000;

/**
 * `rows` as JSON strings for `json_each(?)`, each small enough to bind as one parameter. Usually a
 * single string; more only if the rows are very large.
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
