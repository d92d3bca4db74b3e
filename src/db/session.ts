import type { D1Client } from "./client.ts";
import { makeFinal } from "./errors.ts";

/**
 * Whether a bookmark stands before another; `null`, where nothing has been read, before all.
 * Bookmarks sort as texts (https://developers.cloudflare.com/d1/reference/glossary/).
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

type Query<T> = (session: D1DatabaseSession) => Promise<T>;

/**
 * Reads from whichever replica is near, begun before it is known how new they must be, and in which
 * database. They show what they found once `required` tells: what turns out to be older, or another
 * database's, is read again.
 */
export class EarlySession implements D1Client {
  readonly #required: Promise<ReadPoint>;
  #binding: D1Database;
  #session: D1DatabaseSession;

  /**
   * @param since where to begin.
   * @param required what results must not be older than; when it rejects, so do they.
   */
  constructor(since: ReadPoint, required: Promise<ReadPoint>) {
    this.#required = required;
    this.#binding = since.binding;
    this.#session = openAt(since);
  }

  /** The bookmark of what has been read; null when that was not this database. */
  bookmarkOf(binding: D1Database): string | null {
    return binding === this.#binding ? this.#session.getBookmark() : null;
  }

  prepare(query: string): D1PreparedStatement {
    return new EarlyStatement(this, query, []) as unknown as D1PreparedStatement;
  }

  batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    const early = statements as unknown as EarlyStatement[];
    return this.run((session) => session.batch<T>(early.map((statement) => statement.on(session))));
  }

  async run<T>(query: Query<T>): Promise<T> {
    const early = query(this.#session);
    // Whether it failed matters only once it may be shown.
    early.catch(() => {});
    const required = await this.#required.catch((refusal) => {
      throw makeFinal(refusal);
    });
    if (required.binding === this.#binding) {
      const found = await early;
      if (!isOlder(this.#session.getBookmark(), required.bookmark)) return found;
    }
    this.#binding = required.binding;
    this.#session = openAt(required);
    return query(this.#session);
  }
}

/** A statement that is prepared anew in each session that it is run in. */
class EarlyStatement {
  readonly #session: EarlySession;
  readonly #query: string;
  readonly #parameters: unknown[];

  constructor(session: EarlySession, query: string, parameters: unknown[]) {
    this.#session = session;
    this.#query = query;
    this.#parameters = parameters;
  }

  bind(...parameters: unknown[]): EarlyStatement {
    return new EarlyStatement(this.#session, this.#query, parameters);
  }

  on(session: D1DatabaseSession): D1PreparedStatement {
    return session.prepare(this.#query).bind(...this.#parameters);
  }

  all() {
    return this.#session.run((session) => this.on(session).all());
  }

  raw() {
    return this.#session.run((session) => this.on(session).raw());
  }

  run() {
    return this.#session.run((session) => this.on(session).run());
  }
}
