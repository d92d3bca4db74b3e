import { databaseNames } from "./databases.ts";
import { type D1Client, LateClient, type Query } from "./session.ts";

/**
 * Maximum statements in one invocation, in all databases together; each statement of a batch counts
 * (https://developers.cloudflare.com/d1/platform/limits/). The local runtime does not enforce it.
 */
export const STATEMENTS_MAX = 1_000;
/** What a piece of work takes that is repeated while a budget lasts, unless it says otherwise. */
const PIECE_STATEMENTS = 20;

/** What an invocation, or a part of it, may spend: time, and statements of D1. */
export class Budget {
  readonly #endsAt: number;
  readonly #statements: number;
  readonly #whole: Budget | undefined;
  #spent = 0;

  /** Starts a budget of `ms`, and by default of all statements that an invocation has. */
  constructor(ms: number, statements: number = STATEMENTS_MAX, whole?: Budget) {
    this.#endsAt = performance.now() + ms;
    this.#statements = statements;
    this.#whole = whole;
  }

  /** A budget for a part of the work: so many of these statements, and the time that is left. */
  share(statements: number): Budget {
    return new Budget(this.#endsAt - performance.now(), statements, this);
  }

  /** Whether there is time for more, and so many statements are left. */
  hasMore(statements: number = PIECE_STATEMENTS): boolean {
    return performance.now() < this.#endsAt && this.#spent + statements <= this.#statements;
  }

  /** These bindings, with databases whose statements are spent from this budget. */
  meter(env: Env): Env {
    const bindings = env as unknown as Record<string, D1Database>;
    const metered = databaseNames(env).map((name) => [
      name,
      new MeteredClient(bindings[name] as D1Database, this),
    ]);
    return { ...env, ...Object.fromEntries(metered) };
  }

  /** @throws Error if the invocation has executed more than `STATEMENTS_MAX`, as D1 does. */
  spend(statements: number): void {
    this.#spent += statements;
    this.#whole?.spend(statements);
    if (this.#spent > STATEMENTS_MAX)
      throw new Error(`more than ${STATEMENTS_MAX} statements in one invocation`);
  }
}

/** A database, or a session of one, whose statements are spent from a budget. */
class MeteredClient extends LateClient {
  readonly #client: D1Client;
  readonly #budget: Budget;

  constructor(client: D1Client, budget: Budget) {
    super();
    this.#client = client;
    this.#budget = budget;
  }

  override async execute<T>(query: Query<T>, statements: number): Promise<T> {
    this.#budget.spend(statements);
    return query(this.#client);
  }

  withSession(constraint: string): MeteredClient {
    return new MeteredClient((this.#client as D1Database).withSession(constraint), this.#budget);
  }

  getBookmark(): string | null {
    return (this.#client as D1DatabaseSession).getBookmark();
  }
}
