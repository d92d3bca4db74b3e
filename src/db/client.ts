import { Column, fillPlaceholders, is, type Query, SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { BatchItem } from "drizzle-orm/batch";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import { chunk } from "../chunk.ts";
import { sleep } from "../timing.ts";
import { qb } from "./builder.ts";
import { isRetryable } from "./errors.ts";
import { type D1Client, LateClient } from "./session.ts";

/** Maximum rows that one transaction cancels, exhausts or deletes. */
export const CLEANUP_MAX = 1_000;

/** Drizzle over a D1 binding or session. Transient errors are retried: see `openDatabase`. */
export type Database = DrizzleD1Database & { readonly $client: D1Client };

/** Statements that the caller commits, alone or with others in one transaction. */
export interface Statements<R> {
  readonly queries: readonly Query[];
  /** Reads the results of `queries`, which are in the same order. */
  read(results: D1Result[]): R;
}

/** A Drizzle query that returns rows. */
export type RowQuery<Row> = BatchItem<"sqlite"> & { readonly _: { readonly result: Row[] } };

/**
 * A Drizzle query, or raw SQL. A query that returns rows is read as those rows, anything else as nothing. To
 * read the rows of raw SQL, use `qb.all<Row>(sql)`: they have SQLite's types, strings for JSON, 0 and 1 for
 * booleans.
 */
type Built = BatchItem<"sqlite"> | SQL;
/** What `commit` takes. */
export type Executable = Statements<unknown> | Built;
/** The result of a part of a transaction. */
export type ResultOf<P> =
  P extends Statements<infer R> ? R : P extends RowQuery<infer Row> ? Row[] : undefined;

/** What a transaction consists of, by names of the caller's choice, in order. What is undefined is left out. */
export type Parts = Readonly<Record<string, Executable | undefined>>;
/** The results of a transaction, by the names of its parts. */
export type ResultsByName<P extends Parts | readonly Executable[]> = {
  -readonly [K in keyof P]: P[K] extends Executable
    ? ResultOf<P[K]>
    : ResultOf<Exclude<P[K], undefined>> | undefined;
};

interface PreparedQuery {
  getQuery(): Query;
  mapResult(result: unknown, isFromBatch: boolean): unknown;
}

function prepare(query: Built): PreparedQuery {
  const built: object = is(query, SQL) ? qb.run(query) : query;
  if (!("prepare" in built)) return built as PreparedQuery;
  checkNames(built);
  return (built as { prepare(): PreparedQuery }).prepare();
}

/**
 * D1 returns the rows of a batch as objects, which lack one of two columns with the same name. Drizzle, which reads
 * them by position, would return wrong values (https://github.com/drizzle-team/drizzle-orm/issues/6038).
 *
 * @throws Error if two columns have the same name, as those of joined tables may: alias one.
 */
function checkNames(query: object): void {
  const { selectedFields = {} } =
    (query as { _?: { selectedFields?: Record<string, unknown> } })._ ?? {};
  const names = Object.values(selectedFields).flatMap((field) =>
    is(field, Column) ? field.name : is(field, SQL.Aliased) ? field.fieldAlias : [],
  );
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw new Error(`two selected columns are named ${twice}: alias one`);
}

function toStatements(part: Executable): Statements<unknown> {
  if ("queries" in part) return part;
  const made = prepare(part);
  const read = ([result]: D1Result[]) => {
    const found = made.mapResult(result, true);
    return found === result ? undefined : found;
  };
  return { queries: [made.getQuery()], read };
}

/**
 * A write, read as the number of rows it changed. D1's own count includes the rows that triggers
 * write, as they do while a workspace is copied to another database.
 */
export function counted(query: SQLWrapper): Statements<number> {
  return readAs(qb.all(sql`${query.getSQL()} RETURNING 1`), ({ length }) => length);
}

/** A write of rows passed as JSON, in as many statements as it takes; read as the number of rows it changed. */
export function insertEach(
  rows: readonly unknown[],
  write: (chunk: string) => SQLWrapper,
): Statements<number> {
  const chunks = jsonParameters(rows).map((chunk) => counted(write(chunk)));
  return readAs(transaction(chunks), (counts) => counts.reduce((total, count) => total + count, 0));
}

/** A query whose text is built once, on first use; `sql.placeholder` marks where values go. */
export function prepared<P extends Built>(query: P) {
  let once: Statements<ResultOf<P>> | undefined;
  return (values: Record<string, unknown>): Statements<ResultOf<P>> => {
    once ??= toStatements(query) as Statements<ResultOf<P>>;
    const [{ sql, params }] = once.queries as [Query];
    return { queries: [{ sql, params: fillPlaceholders(params, values) }], read: once.read };
  };
}

/**
 * Statements in order; the result has those of the parts, by name. As many as there are rows or tables are a
 * list instead, and so are their results.
 *
 * @example
 * const { found, removed } = await commit(db, {
 *   found: qb.select().from(leads),
 *   removed: isRemoving ? counted(qb.delete(leads)) : undefined,
 * });
 */
export function transaction<const P extends Parts | readonly Executable[]>(
  parts: P,
): Statements<ResultsByName<P>> {
  const made = Object.entries(parts).flatMap(([name, part]) =>
    part === undefined ? [] : [{ name, ...toStatements(part) }],
  );
  return {
    queries: made.flatMap(({ queries }) => queries),
    read(all) {
      let start = 0;
      const found = made.map(({ name, queries, read }) => {
        const own = all.slice(start, start + queries.length);
        start += queries.length;
        return [name, read(own)] as const;
      });
      const results = Array.isArray(parts)
        ? found.map(([, result]) => result)
        : Object.fromEntries(found);
      return results as ResultsByName<P>;
    },
  };
}

/** The same statements, with their result mapped by `read`. */
export function readAs<P extends Executable, B>(
  part: P,
  read: (result: ResultOf<P>) => B,
): Statements<B> {
  const made = toStatements(part) as Statements<ResultOf<P>>;
  return { queries: made.queries, read: (results) => read(made.read(results)) };
}

const TRIES = 4;

class RetryingClient extends LateClient {
  readonly client: D1Client;

  constructor(client: D1Client) {
    super();
    this.client = client;
  }

  override execute<T>(query: (client: D1Client) => Promise<T>): Promise<T> {
    return retryTransient(() => query(this.client));
  }
}

/**
 * Opens the database behind a D1 binding or session. Transient D1 errors are retried with jittered
 * exponential backoff. The failed try may have been committed, so statements must be safe to apply
 * twice; otherwise use `withoutRetries`.
 */
export function openDatabase(client: D1Client): Database {
  return overClient(new RetryingClient(client));
}

export function withoutRetries({ $client }: Database): Database {
  return overClient($client instanceof RetryingClient ? $client.client : $client);
}

// Drizzle calls nothing else of a binding.
const overClient = (client: D1Client) => drizzle(client as D1Database);

/**
 * Commits statements as one transaction. Unlike `db.batch`, it takes prepared ones and raw SQL
 * (https://github.com/drizzle-team/drizzle-orm/issues/2197 and 2277).
 */
export function commit<P extends Executable>(db: Database, part: P): Promise<ResultOf<P>>;
export function commit<const P extends Parts>(db: Database, parts: P): Promise<ResultsByName<P>>;
export async function commit({ $client }: Database, work: Executable | Parts): Promise<unknown> {
  const { queries, read } = isParts(work) ? transaction(work) : toStatements(work);
  if (queries.length === 0) return read([]);
  return read(
    await $client.batch(queries.map(({ sql, params }) => $client.prepare(sql).bind(...params))),
  );
}

function isParts(work: Executable | Parts): work is Parts {
  return Object.getPrototypeOf(work) === Object.prototype && !("queries" in work);
}

/** Reads several things in one round trip, as they were at one moment. */
export function read<const P extends Parts>(db: Database, parts: P): Promise<ResultsByName<P>> {
  return commit(db, parts);
}

/** Reads one thing. */
export async function query<P extends Executable>(
  { $client }: Database,
  one: P,
): Promise<ResultOf<P>> {
  const { queries, read } = toStatements(one) as Statements<ResultOf<P>>;
  const [{ sql, params }] = queries as [Query];
  return read([
    await $client
      .prepare(sql)
      .bind(...params)
      .all(),
  ]);
}

/**
 * Does `work`, which must be safe to repeat, and repeats it after a transient error of D1 or of a Durable
 * Object.
 *
 * @param waitMs the approximate wait before the second try; doubles with each try.
 */
export async function retryTransient<T>(work: () => T, waitMs = 100): Promise<Awaited<T>> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt === TRIES || !isRetryable(error)) throw error;
      await sleep(waitMs * 2 ** (attempt - 1) * (0.5 + Math.random()));
    }
  }
}

const encoder = new TextEncoder();

/** D1 binds strings of at most 2,000,000 bytes. */
const JSON_PARAMETER_MAX_BYTES = 1_950_000;

/** `rows` as JSON for `json_each(?)`: one string, or several if it would be too long to bind. */
export function jsonParameters(rows: readonly unknown[]): string[] {
  const texts = rows.map((row) => JSON.stringify(row));
  const groups = chunk(texts, JSON_PARAMETER_MAX_BYTES, (text) => encoder.encode(text).length + 1);
  return groups.map((group) => `[${group.join()}]`);
}
