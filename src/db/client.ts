import { Column, fillPlaceholders, is, type Query, SQL, type SQLWrapper, sql } from "drizzle-orm";
import type { BatchItem } from "drizzle-orm/batch";
import { type DrizzleD1Database, drizzle } from "drizzle-orm/d1";
import { chunk } from "../primitives/chunk.ts";
import { qb } from "./builder.ts";
import { retryTransient } from "./errors.ts";

/*
 * The layer over Drizzle. Drizzle builds queries; this file executes them. It adds what Drizzle's driver for D1 lacks:
 *
 * - Transactions with named results. `commit` sends several statements in one round trip, as one transaction, and
 *   returns their results by name. Unlike `db.batch`, it takes prepared statements and raw SQL
 *   (https://github.com/drizzle-team/drizzle-orm/issues/2197 and 2277).
 * - Statements that are prepared once. `prepared` builds the text of a query once. A call only fills in values.
 * - Retries. A query is repeated after a transient error of D1 (errors.ts). The failed try may have been committed, so
 *   statements must be safe to apply twice. `withoutRetries` is for those that are not.
 * - A budget of statements, of which an invocation may execute 1,000 (budget.ts).
 *
 * A part is a Drizzle query, raw SQL, or `Statements`, which are queries with a function that reads their result. Other
 * folders write functions that return parts. One named `select…` returns a part that reads, whereas one named `find…`
 * reads at once. The caller decides which parts form a transaction:
 *
 *     const { stored, events } = await commit(db, { events: announce(…), stored: insertLeads(…) });
 *
 * The other files: builder.ts has SQL that Drizzle cannot build, page.ts paginates.
 */

/** The methods of D1 that Drizzle and this layer call. */
export type D1Client = Pick<D1Database, "prepare" | "batch">;

/** Drizzle over D1, which retries transient errors. Writes go through `commit`, so that none escapes a `Guard`. */
export type Database = Omit<
  DrizzleD1Database,
  "insert" | "update" | "delete" | "batch" | "transaction"
> & { readonly $client: D1Client };

/** Queries with a function that reads their result. */
export interface Statements<R> {
  readonly queries: readonly Query[];
  /** Reads the results of `queries`, which are in the same order. */
  read(results: D1Result[]): R;
}

/** A Drizzle query that returns rows. */
export type RowQuery<Row> = BatchItem<"sqlite"> & { readonly _: { readonly result: Row[] } };

/**
 * A Drizzle query, or raw SQL. The result of a query that returns rows is these rows; any other query has no result.
 * `qb.all<Row>(sql)` reads the rows of raw SQL. They have the types of SQLite: strings for JSON, 0 and 1 for booleans.
 */
type DrizzleQuery = BatchItem<"sqlite"> | SQL;
/** A part of a transaction. */
export type Part = Statements<unknown> | DrizzleQuery;
/** The result of a part. */
export type ResultOf<P> =
  P extends Statements<infer R> ? R : P extends RowQuery<infer Row> ? Row[] : undefined;

/**
 * The parts of a transaction, by names of the caller's choice. They are executed in the order in which they are written.
 * A part that is undefined is left out.
 */
export type Parts = Readonly<Record<string, Part | undefined>>;
/** The results of parts, by their names. */
export type ResultsOf<P extends Parts | readonly Part[]> = {
  -readonly [K in keyof P]: P[K] extends Part
    ? ResultOf<P[K]>
    : ResultOf<Exclude<P[K], undefined>> | undefined;
};

/** A query that Drizzle has prepared, with the methods of it that this layer uses. */
interface PreparedQuery {
  getQuery(): Query;
  mapResult(result: unknown, isFromBatch: boolean): unknown;
}

function prepareQuery(query: DrizzleQuery): PreparedQuery {
  const built: object = is(query, SQL) ? qb.run(query) : query;
  // Raw SQL needs no preparation.
  if (!("prepare" in built)) return built as PreparedQuery;
  checkNames(built);
  return (built as { prepare(): PreparedQuery }).prepare();
}

/**
 * Rejects two columns with the same name. D1 returns the rows of a batch as objects, which lack one of the two. Drizzle
 * reads them by position, and would return wrong values (https://github.com/drizzle-team/drizzle-orm/issues/6038).
 *
 * @throws Error if two columns, such as those of joined tables, have the same name: alias one of them.
 */
function checkNames(query: object): void {
  const names = Object.values(namesOf(query));
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw new Error(`two selected columns are named ${twice}: alias one`);
}

/** Returns the names of the columns that a query selects, by field; an expression without an alias has none. */
function namesOf(query: object): Record<string, string> {
  const { selectedFields = {} } =
    (query as { _?: { selectedFields?: Record<string, unknown> } })._ ?? {};
  return Object.fromEntries(
    Object.entries(selectedFields).flatMap(([field, column]) => {
      const name = is(column, Column) ? column.name : is(column, SQL.Aliased) && column.fieldAlias;
      return name ? [[field, name]] : [];
    }),
  );
}

/** Converts a part to its queries. */
function toStatements(part: Part): Statements<unknown> {
  if ("queries" in part) return part;
  const query = prepareQuery(part);
  const read = ([result]: D1Result[]) => {
    // Drizzle returns the result itself for a query without rows.
    const rows = query.mapResult(result, true);
    return rows === result ? undefined : rows;
  };
  return { queries: [query.getQuery()], read };
}

/** Reads the number of rows that a write has changed. D1's own count includes rows that triggers have written. */
export function counted(query: SQLWrapper): Statements<number> {
  return readAs(qb.all(sql`${query.getSQL()} RETURNING 1`), ({ length }) => length);
}

/** Writes rows that are passed as JSON, in as many statements as necessary. Reads the number of rows it changed. */
export function insertEach(
  rows: readonly unknown[],
  write: (chunk: string) => SQLWrapper,
): Statements<number> {
  const chunks = jsonParameters(rows).map((chunk) => counted(write(chunk)));
  return readAs(combine(chunks), (counts) => counts.reduce((total, count) => total + count, 0));
}

/**
 * Prepares a part, whose text is built once. `sql.placeholder` marks the places of values by name. A call without one of
 * these values throws an error.
 */
export function prepared<P extends Part>(part: P) {
  let once: Statements<ResultOf<P>> | undefined;
  return (values: Record<string, unknown>): Statements<ResultOf<P>> => {
    once ??= toStatements(part) as Statements<ResultOf<P>>;
    const queries = once.queries.map(({ sql, params }) => ({
      sql,
      params: fillPlaceholders(params, values),
    }));
    return { queries, read: once.read };
  };
}

/**
 * Combines parts, which a transaction executes in the order in which they are written here. `commit` executes them; this
 * function executes nothing. The result has the results of the parts, by their names. Parts whose number varies are a
 * list instead, and so are their results.
 *
 * @example
 * combine({
 *   found: qb.select().from(leads),
 *   removed: isRemoving ? counted(qb.delete(leads)) : undefined,
 * });
 */
export function combine<const P extends Parts | readonly Part[]>(
  parts: P,
): Statements<ResultsOf<P>> {
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
      return results as ResultsOf<P>;
    },
  };
}

/** Maps the result of a part with `read`. The text of its queries is built at once. */
export function readAs<P extends Part, B>(
  part: P,
  read: (result: ResultOf<P>) => B,
): Statements<B> {
  const made = toStatements(part) as Statements<ResultOf<P>>;
  return { queries: made.queries, read: (results) => read(made.read(results)) };
}

/** A statement that precedes each transaction of a client, and makes it fail unless it may write. */
export interface Guard {
  readonly query: Query;
  /** Converts the error of a transaction, which the statement may have caused. */
  toError(error: unknown): unknown;
  /** Whether a transaction may have written something. A later failure is not converted then. */
  mayHaveWritten?: boolean;
}

interface ClientOptions {
  /** Maximum tries of a call that fails with a transient error, if not those of `retryTransient`. */
  tries?: number | undefined;
  /**
   * Spends the statements of a call from a budget. `Budget.meter` wraps a binding in a client that spends and makes one
   * try. `connect` wraps that in another client, which makes the further tries.
   */
  spend?: (statements: number) => void;
  guard?: Guard | undefined;
}

/** A client over D1, or over another client, with what its options add to each call. */
export class Client implements D1Client {
  readonly client: D1Client;
  readonly options: ClientOptions;

  constructor(client: D1Client, options: ClientOptions) {
    this.client = client;
    this.options = options;
  }

  prepare(text: string): D1PreparedStatement {
    // Drizzle only calls the methods that `ClientStatement` has.
    return new ClientStatement(this, this.client.prepare(text)) as never;
  }

  async batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    const inner = (statements as unknown as ClientStatement[]).map(({ statement }) => statement);
    const { guard } = this.options;
    if (!guard) return this.call(inner.length, () => this.client.batch<T>(inner));
    const { sql: text, params } = guard.query;
    const guarded = [this.client.prepare(text).bind(...params), ...inner];
    const batchOnce = async () => {
      try {
        const results = await this.client.batch<T>(guarded);
        guard.mayHaveWritten ||= results.some(({ meta }) => meta.changed_db);
        return results;
      } catch (error) {
        // Unless the guard has made it fail, the transaction may have been committed, and only its reply lost.
        guard.mayHaveWritten ||= guard.toError(error) === error;
        throw error;
      }
    };
    try {
      return (await this.call(guarded.length, batchOnce)).slice(1);
    } catch (error) {
      // A refusal says that nothing was written, so a request that may have written fails with an internal error instead.
      throw guard.mayHaveWritten ? error : guard.toError(error);
    }
  }

  async call<T>(statements: number, work: () => Promise<T>): Promise<T> {
    const { tries, spend } = this.options;
    spend?.(statements);
    return retryTransient(work, { tries });
  }
}

class ClientStatement {
  readonly #client: Client;
  readonly statement: D1PreparedStatement;

  constructor(client: Client, statement: D1PreparedStatement) {
    this.#client = client;
    this.statement = statement;
  }

  bind(...values: unknown[]): ClientStatement {
    return new ClientStatement(this.#client, this.statement.bind(...values));
  }

  all() {
    return this.#client.call(1, () => this.statement.all());
  }

  raw() {
    return this.#client.call(1, () => this.statement.raw());
  }

  run() {
    return this.#client.call(1, () => this.statement.run());
  }
}

/** Opens the database behind a D1 binding. Transient errors are retried. */
export function connect(binding: D1Client, guard?: Guard): Database {
  return overClient(new Client(binding, { guard }));
}

/** Returns the same database without retries, for statements that are not safe to apply twice. */
export function withoutRetries(db: Database): Database {
  const { $client } = db;
  if (!($client instanceof Client)) return db;
  return overClient(new Client($client.client, { ...$client.options, tries: 1 }));
}

const overClient = (client: Client) => drizzle(client as never) as unknown as Database;

/** Commits one part, or several by name, as one transaction, in one round trip. */
export function commit<P extends Part>(db: Database, part: P): Promise<ResultOf<P>>;
export function commit<const P extends Parts>(db: Database, parts: P): Promise<ResultsOf<P>>;
export async function commit({ $client }: Database, work: Part | Parts): Promise<unknown> {
  const { queries, read } = isParts(work) ? combine(work) : toStatements(work);
  if (queries.length === 0) return read([]);
  return read(
    await $client.batch(queries.map(({ sql, params }) => $client.prepare(sql).bind(...params))),
  );
}

function isParts(work: Part | Parts): work is Parts {
  return Object.getPrototypeOf(work) === Object.prototype && !("queries" in work);
}

/** Reads with one part, or with several by name, in one round trip, from one state of the database. */
export function query<P extends Part>(db: Database, part: P): Promise<ResultOf<P>>;
export function query<const P extends Parts>(db: Database, parts: P): Promise<ResultsOf<P>>;
export async function query(db: Database, work: Part | Parts): Promise<unknown> {
  const part = isParts(work) ? combine(work) : toStatements(work);
  const [first, ...others] = part.queries;
  // D1 executes several statements in one round trip only as a transaction, which here only reads.
  if (!first || others.length > 0) return commit(db, part);
  const statement = db.$client.prepare(first.sql).bind(...first.params);
  return part.read([await statement.all()]);
}

const encoder = new TextEncoder();

/** Maximum bytes of a JSON parameter, below the limit of D1 for strings, 2,000,000 bytes. */
const JSON_PARAMETER_MAX_BYTES = 1_950_000;

/** Serializes rows for `json_each(?)`: one string, or several if it would be too long for D1. */
export function jsonParameters(rows: readonly unknown[]): string[] {
  const texts = rows.map((row) => JSON.stringify(row));
  const groups = chunk(texts, JSON_PARAMETER_MAX_BYTES, (text) => encoder.encode(text).length + 1);
  return groups.map((group) => `[${group.join()}]`);
}
