import type { D1Client } from "./client.ts";
import { makeFinal } from "./errors.ts";

/**
 * Whether a bookmark is older than another; `null`, for nothing read yet, is the oldest. Bookmarks
 * sort as strings (https://developers.cloudflare.com/d1/reference/glossary/).
 */
export function isOlder(bookmark: string | null, than: string | null): boolean {
  return than !== null && (bookmark === null || bookmark < than);
}

type Query<T> = (session: D1DatabaseSession) => Promise<T>;

/**
 * Reads from the nearest replica before it is known how fresh the data must be. A result is
 * returned once `required` resolves; one that turns out to be too old is read again.
 */
export class EarlySession implements D1Client {
  readonly #binding: D1Database;
  readonly #required: Promise<string | null>;
  #session: D1DatabaseSession;

  /**
   * @param since the bookmark to start from; `null` for none.
   * @param required the bookmark that results must not be older than; if it rejects, so do they.
   */
  constructor(binding: D1Database, since: string | null, required: Promise<string | null>) {
    this.#binding = binding;
    this.#required = required;
    this.#session = binding.withSession(since ?? "first-unconstrained");
  }

  /** The bookmark of what has been read so far. */
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
    // A failure matters only once the result may be returned.
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

/** A statement that is prepared again in each session it runs in. */
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
