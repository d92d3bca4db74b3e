import { MOVING_WAIT_MS } from "../contract/limits.ts";
import type { D1Client } from "./client.ts";
import { isMoving, makeFinal } from "./errors.ts";

/**
 * Whether a bookmark is older than another; `null`, for nothing read yet, is the oldest. Bookmarks
 * sort as strings (https://developers.cloudflare.com/d1/reference/glossary/).
 */
export function isOlder(bookmark: string | null, than: string | null): boolean {
  return than !== null && (bookmark === null || bookmark < than);
}

/** A database, and a bookmark of it; `null` for any state of it. */
export interface ReadPoint {
  binding: D1Database;
  bookmark: string | null;
}

function openAt({ binding, bookmark }: ReadPoint): D1DatabaseSession {
  return binding.withSession(bookmark ?? "first-unconstrained");
}

type Query<T> = (client: D1Client) => Promise<T>;

/** A client that decides when a query is run where; each is prepared anew wherever it is run. */
abstract class LateClient implements D1Client {
  abstract execute<T>(query: Query<T>): Promise<T>;

  prepare(query: string): D1PreparedStatement {
    return new LateStatement(this, query, []) as unknown as D1PreparedStatement;
  }

  batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    const late = statements as unknown as LateStatement[];
    return this.execute((client) => client.batch<T>(late.map((statement) => statement.on(client))));
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
    return this.#client.execute((client) => this.on(client).all());
  }

  raw() {
    return this.#client.execute((client) => this.on(client).raw());
  }

  run() {
    return this.#client.execute((client) => this.on(client).run());
  }
}

/**
 * Reads from whichever replica is near, begun before it is known how new they must be, and in which
 * database. They show what they found once `required` tells: what turns out to be older, or another
 * database's, is read again.
 */
export class EarlySession extends LateClient {
  readonly #required: Promise<ReadPoint>;
  #binding: D1Database;
  #session: D1DatabaseSession;

  /**
   * @param since where to begin.
   * @param required what results must not be older than; when it rejects, so do they.
   */
  constructor(since: ReadPoint, required: Promise<ReadPoint>) {
    super();
    this.#required = required;
    this.#binding = since.binding;
    this.#session = openAt(since);
  }

  /** The bookmark of what has been read; null when that was not this database. */
  bookmarkOf(binding: D1Database): string | null {
    return binding === this.#binding ? this.#session.getBookmark() : null;
  }

  override async execute<T>(query: Query<T>): Promise<T> {
    const [binding, session] = [this.#binding, this.#session];
    const early = query(session);
    // A failure matters only once the result may be returned.
    early.catch(() => {});
    const required = await this.#required.catch((refusal) => {
      throw makeFinal(refusal);
    });
    if (required.binding === binding) {
      const found = await early;
      if (!isOlder(session.getBookmark(), required.bookmark)) return found;
    }
    // Unless another query beside this one has done so.
    if (session === this.#session) {
      this.#binding = required.binding;
      this.#session = openAt(required);
    }
    return query(this.#session);
  }
}

/** A database and its name. */
interface Place {
  database: string;
  binding: D1Database;
}

/** How often a write asks anew where its workspace lives. */
const ASK_AGAIN_MS = 50;

/**
 * Writes to the database that a workspace lives in, wherever that is: while the workspace changes it,
 * writes wait, and then go to the other one. Sessions begin at the primary.
 */
export class MovingSession extends LateClient {
  readonly #find: () => Promise<Place>;
  /** The name of the database that was written to last. */
  database: string;
  #session: D1DatabaseSession;

  /** @param find looks up where the workspace lives. */
  constructor({ database, binding }: Place, find: () => Promise<Place>) {
    super();
    this.database = database;
    this.#session = binding.withSession("first-primary");
    this.#find = find;
  }

  getBookmark(): string | null {
    return this.#session.getBookmark();
  }

  override async execute<T>(query: Query<T>): Promise<T> {
    const startedAt = performance.now();
    for (;;) {
      try {
        return await query(this.#session);
      } catch (error) {
        if (!isMoving(error)) throw error;
        if (performance.now() - startedAt > MOVING_WAIT_MS)
          throw new Error("the workspace is changing its database: try again in a moment");
      }
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
      const { database, binding } = await this.#find();
      this.database = database;
      this.#session = binding.withSession("first-primary");
    }
  }
}
