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
 *
 * For example, a query through a retrying client and early reads takes these steps:
 *
 * 1. `prepare(text).bind(…)` on the retrying client only stores the text and the parameters, in a `DeferredStatement`.
 * 2. Its `all()` calls `execute` of the retrying client, which passes the query on to its own client, the early reads.
 *    There, `prepare` and `bind` store it again, in a second `DeferredStatement`.
 * 3. Its `all()` calls `execute` of the early reads, which chooses a session of D1. Now D1 prepares and executes it.
 *
 * So each retry, and each choice of a session, begins with a statement of its own.
 */
export abstract class DeferredClient implements D1Client {
  /** Executes a call. @param texts its statements, in SQL. */
  abstract execute<T>(call: ClientCall<T>, texts: readonly string[]): Promise<T>;

  prepare(query: string): D1PreparedStatement {
    return new DeferredStatement(this, query, []) as unknown as D1PreparedStatement;
  }

  batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    const deferred = statements as unknown as DeferredStatement[];
    return this.execute(
      (client) => client.batch<T>(deferred.map((statement) => statement.on(client))),
      deferred.map(({ text }) => text),
    );
  }
}

class DeferredStatement {
  readonly #client: DeferredClient;
  readonly text: string;
  readonly #parameters: unknown[];

  constructor(client: DeferredClient, text: string, parameters: unknown[]) {
    this.#client = client;
    this.text = text;
    this.#parameters = parameters;
  }

  bind(...parameters: unknown[]): DeferredStatement {
    return new DeferredStatement(this.#client, this.text, parameters);
  }

  on(client: D1Client): D1PreparedStatement {
    return client.prepare(this.text).bind(...this.#parameters);
  }

  all() {
    return this.#client.execute((client) => this.on(client).all(), [this.text]);
  }

  raw() {
    return this.#client.execute((client) => this.on(client).raw(), [this.text]);
  }

  run() {
    return this.#client.execute((client) => this.on(client).run(), [this.text]);
  }
}

/**
 * A client that starts reads on a nearby replica before it is known how recent they must be, and which database they
 * must come from. Once `required` resolves, a result that is too old, or from the wrong database, is read again.
 */
export class EarlyReads extends DeferredClient {
  readonly #since: ReadPoint;
  readonly #required: Promise<ReadPoint>;
  /** The source that satisfies `required`, from which all further reads come; null until a read has found it. */
  #source: { binding: D1Database; session: D1DatabaseSession } | null = null;

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
    return this.#source?.binding === binding ? this.#source.session.getBookmark() : null;
  }

  override async execute<T>(call: ClientCall<T>): Promise<T> {
    if (this.#source) return call(this.#source.session);
    // Each early read has a session of its own. The bookmark of a shared one could be that of a concurrent, newer read,
    // and this result would pass the check below although it is too old.
    const session = openSession(this.#since);
    const early = call(session);
    // A failure only matters once the request is admitted.
    early.catch(() => {});
    const required = await this.#required;
    const { binding } = required;
    if (binding === this.#since.binding) {
      const found = await early;
      if (!isOlder(session.getBookmark(), required.bookmark)) {
        this.#source ??= { binding, session };
        return found;
      }
    }
    // A concurrent query may have opened the required session already.
    this.#source ??= { binding, session: openSession(required) };
    return call(this.#source.session);
  }
}
