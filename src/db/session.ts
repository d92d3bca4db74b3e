/** The part of D1 that is used; both a binding and a session have it. */
export type D1Client = Pick<D1Database, "prepare" | "batch">;

/**
 * Whether a bookmark is older than another. Null, for nothing read yet, is older than any. Bookmarks sort as
 * strings (https://developers.cloudflare.com/d1/reference/glossary/).
 */
export function isOlder(bookmark: string | null, than: string | null): boolean {
  return than !== null && (bookmark === null || bookmark < than);
}

/** A database and a bookmark of it; null allows any state. */
export interface ReadPoint {
  binding: D1Database;
  bookmark: string | null;
}

function openAt({ binding, bookmark }: ReadPoint): D1DatabaseSession {
  return binding.withSession(bookmark ?? "first-unconstrained");
}

/** A query, or the batch that it stands for, on the client that it is given. */
export type Query<T> = (client: D1Client) => Promise<T>;

/** A client that decides later where, and how often, to execute a query; each time it is prepared anew. */
export abstract class LateClient implements D1Client {
  /** @param statements how many the query has. */
  abstract execute<T>(query: Query<T>, statements: number): Promise<T>;

  prepare(query: string): D1PreparedStatement {
    return new LateStatement(this, query, []) as unknown as D1PreparedStatement;
  }

  batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    const late = statements as unknown as LateStatement[];
    return this.execute(
      (client) => client.batch<T>(late.map((statement) => statement.on(client))),
      late.length,
    );
  }
}

class LateStatement {
  readonly #client: LateClient;
  readonly #query: string;
  readonly #parameters: unknown[];

  constructor(client: LateClient, query: string, parameters: unknown[]) {
    this.#client = client;
    this.#query = query;
    this.#parameters = parameters;
  }

  bind(...parameters: unknown[]): LateStatement {
    return new LateStatement(this.#client, this.#query, parameters);
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
 * Starts reads on a nearby replica before it is known how recent they must be and which database they
 * must come from. Once `required` resolves, a result that is too old, or of the wrong database, is read
 * again.
 */
export class EarlySession extends LateClient {
  readonly #required: Promise<ReadPoint>;
  #binding: D1Database;
  #session: D1DatabaseSession;

  /**
   * @param since where to start reading.
   * @param required results must not be older than this. If it rejects, so do the reads.
   */
  constructor(since: ReadPoint, required: Promise<ReadPoint>) {
    super();
    this.#required = required;
    this.#binding = since.binding;
    this.#session = openAt(since);
  }

  /** The bookmark of what was read; null if that was not this database. */
  bookmarkOf(binding: D1Database): string | null {
    return binding === this.#binding ? this.#session.getBookmark() : null;
  }

  override async execute<T>(query: Query<T>): Promise<T> {
    const [binding, session] = [this.#binding, this.#session];
    const early = query(session);
    // A failure only matters once the request is admitted.
    early.catch(() => {});
    const required = await this.#required;
    if (required.binding === binding) {
      const found = await early;
      if (!isOlder(session.getBookmark(), required.bookmark)) return found;
    }
    // Unless a concurrent query has already done so.
    if (session === this.#session) {
      this.#binding = required.binding;
      this.#session = openAt(required);
    }
    return query(this.#session);
  }
}
