import type { D1Client } from "./client.ts";
import { makeFinal } from "./errors.ts";

/**
 * Whether a bookmark stands before another; `null`, where nothing has been read, before all.
 * Bookmarks sort as texts (https://developers.cloudflare.com/d1/reference/glossary/).
 */
export function isOlder(bookmark: string | null, than: string | null): boolean {
  return than !== null && (bookmark === null || bookmark < than);
}

type Query<T> = (session: D1DatabaseSession) => Promise<T>;

/**
 * Reads from whichever replica is near, begun before it is known how new they must be. They show
 * what they found once `required` tells: what turns out to be older is read again.
 */
export class EarlySession implements D1Client {
  readonly #binding: D1Database;
  readonly #required: Promise<string | null>;
  #session: D1DatabaseSession;

  /**
   * @param since the bookmark to begin at; `null` for any.
   * @param required the bookmark that results must not be older than; when it rejects, so do they.
   */
  constructor(binding: D1Database, since: string | null, required: Promise<string | null>) {
    this.#binding = binding;
    this.#required = required;
    this.#session = binding.withSession(since ?? "first-unconstrained");
  }

  /** The bookmark of what has been read. */
  getBookmark(): string | null {
    return this.#session.getBookmark();
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
    const found = await early;
    if (!isOlder(this.#session.getBookmark(), required)) return found;
    this.#session = this.#binding.withSession(required ?? "first-unconstrained");
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
