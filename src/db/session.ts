/** The methods of D1 that this layer uses. Both a binding and a session have them. */
export type D1Client = Pick<D1Database, "prepare" | "batch">;

/**
 * Whether a bookmark is older than another. Null means that nothing was read yet, and is older than any bookmark.
 * Bookmarks sort as strings (https://developers.cloudflare.com/d1/reference/glossary/).
 */
export function isOlder(bookmark: string | null, than: string | null): boolean {
  return than !== null && (bookmark === null || bookmark < than);
}

/** A database and a bookmark of it; a bookmark of null allows any state. */
export interface ReadPoint {
  binding: D1Database;
  bookmark: string | null;
}

/** Opens a session whose reads are at least as recent as a read point. */
export function openSession({ binding, bookmark }: ReadPoint): D1DatabaseSession {
  return binding.withSession(bookmark ?? "first-unconstrained");
}

/** A call that executes a query or a batch on a client. */
export type ClientCall<T> = (client: D1Client) => Promise<T>;

/**
 * A client over another one, which it chooses when a query is executed. The query is prepared anew for each execution.
 * These layers may lie between Drizzle and D1, in this order:
 *
 *     RetryingClient                repeats a query after a transient error (client.ts)
 *       EarlyReads                  reads before it is known how recent a read must be (this file), or
 *       GuardedClient               fails a transaction if its request may not write any more (workspaces/write-guard.ts)
 *         MeteredClient             counts the statements of an invocation (budget.ts)
 *           D1                      a binding, or a session of one
 */
export abstract class DeferredClient implements D1Client {
  /** Executes a call. @param statements the number of its statements. */
  abstract execute<T>(call: ClientCall<T>, statements: number): Promise<T>;

  prepare(query: string): D1PreparedStatement {
    return new DeferredStatement(this, query, []) as unknown as D1PreparedStatement;
  }

  batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    const deferred = statements as unknown as DeferredStatement[];
    return this.execute(
      (client) => client.batch<T>(deferred.map((statement) => statement.on(client))),
      deferred.length,
    );
  }
}

class DeferredStatement {
  readonly #client: DeferredClient;
  readonly #query: string;
  readonly #parameters: unknown[];

  constructor(client: DeferredClient, query: string, parameters: unknown[]) {
    this.#client = client;
    this.#query = query;
    this.#parameters = parameters;
  }

  bind(...parameters: unknown[]): DeferredStatement {
    return new DeferredStatement(this.#client, this.#query, parameters);
  }

  on(client: D1Client): D1PreparedStatement {
    return client.prepare(this.#query).bind(...this.#parameters);
  }

  all() {
    return this.#client.execute((client) => this.on(client).all(), 1);
  }

  raw() {
    return this.#client.execute((client) => this.on(client).raw(), 1);
  }

  run() {
    return this.#client.execute((client) => this.on(client).run(), 1);
  }
}

/**
 * A client that starts reads on a nearby replica before it is known how recent they must be, and which database they
 * must come from. Once `required` resolves, a result that is too old, or from the wrong database, is read again.
 */
export class EarlyReads extends DeferredClient {
  readonly #since: ReadPoint;
  readonly #required: Promise<ReadPoint>;
  /** The database and session that are recent enough; null until a read has found one. */
  #met: { binding: D1Database; session: D1DatabaseSession } | null = null;

  /**
   * @param since the database and the bookmark with which reads start.
   * @param required the database and the bookmark that results must have at least. If it rejects, so do the reads.
   */
  constructor(since: ReadPoint, required: Promise<ReadPoint>) {
    super();
    this.#since = since;
    this.#required = required;
    // A rejection is only an error for a read, and there may be none.
    required.catch(() => {});
  }

  /** Returns the bookmark of the reads; null if there is none of this database. */
  bookmarkOf(binding: D1Database): string | null {
    return this.#met?.binding === binding ? this.#met.session.getBookmark() : null;
  }

  override async execute<T>(call: ClientCall<T>): Promise<T> {
    if (this.#met) return call(this.#met.session);
    // It has a session of its own, because the bookmark of a shared one may be that of a concurrent, newer read.
    const session = openSession(this.#since);
    const early = call(session);
    // A failure only matters once the request is admitted.
    early.catch(() => {});
    const required = await this.#required;
    const { binding } = required;
    if (binding === this.#since.binding) {
      const found = await early;
      if (!isOlder(session.getBookmark(), required.bookmark)) {
        this.#met ??= { binding, session };
        return found;
      }
    }
    // A concurrent query may have opened the required session already.
    this.#met ??= { binding, session: openSession(required) };
    return call(this.#met.session);
  }
}
