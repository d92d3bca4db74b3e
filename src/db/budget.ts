import { Client } from "./client.ts";
import { databaseNames } from "./databases.ts";

/**
 * Maximum statements in one invocation, in all databases together; each statement of a batch counts
 * (https://developers.cloudflare.com/d1/platform/limits/). The local runtime does not enforce it.
 */
export const STATEMENTS_MAX = 1_000;
/** Maximum rows that one transaction cancels, exhausts or deletes. */
export const CLEANUP_MAX = 1_000;
/** The default number of statements of one chunk of work that is repeated while a budget lasts. */
const CHUNK_STATEMENTS = 20;

/** The time and the D1 statements that an invocation, or a part of it, may spend. */
export class Budget {
  readonly #endsAt: number;
  readonly #statements: number;
  readonly #whole: Budget | undefined;
  #spent = 0;

  /** Starts a budget of `ms`. By default, it has all statements of the invocation. */
  constructor(ms: number, statements: number = STATEMENTS_MAX, whole?: Budget) {
    this.#endsAt = performance.now() + ms;
    this.#statements = statements;
    this.#whole = whole;
  }

  /** Returns a budget for a part of the work, with a number of these statements and the time that is left. */
  share(statements: number): Budget {
    return new Budget(this.#endsAt - performance.now(), statements, this);
  }

  /** Whether time and this number of statements are left. */
  hasMore(statements: number = CHUNK_STATEMENTS): boolean {
    return performance.now() < this.#endsAt && this.#spent + statements <= this.#statements;
  }

  /** Returns the bindings with databases whose statements are spent from this budget. */
  meter(env: Env): Env {
    const bindings = env as unknown as Record<string, D1Database>;
    const spend = (statements: number) => this.spend(statements);
    const metered = databaseNames(env).map((name) => [
      name,
      new Client(bindings[name] as D1Database, { tries: 1, spend }),
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
