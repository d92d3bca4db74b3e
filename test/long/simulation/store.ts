import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { D1_FAULTS, type Fault, toError } from "../../../scripts/shared/faults.ts";
import type { Isolate, World } from "./world.ts";

const BEFORE_COMMIT = D1_FAULTS.filter(({ moment }) => moment === "before");
const AFTER_COMMIT = D1_FAULTS.filter(({ moment }) => moment === "after");

const LOGS_ATTEMPTS = /INSERT INTO "attempts"/;

const MIGRATIONS = join(import.meta.dirname, "../../../migrations");

/** A real SQLite database that looks like D1 to the code under test. */
export class Store {
  readonly db = new DatabaseSync(":memory:");
  /**
   * Rows written by the consumers, without the table of attempts, which has a row for each failure.
   */
  consumerWrites = 0;
  /** How D1 has failed. */
  readonly injected = new Set<Fault>();
  /** Called at the very moment when a write has been committed. */
  onCommit: () => void = () => {};
  #statements = new Map<string, StatementSync>();

  readonly world: World;

  constructor(world: World) {
    this.world = world;
    for (const file of readdirSync(MIGRATIONS)
      .filter((name) => name.endsWith(".sql"))
      .sort())
      this.db.exec(readFileSync(join(MIGRATIONS, file), "utf8"));
  }

  /**
   * Rows of a query, immediately and without faults: for the checks, not for the code under test.
   */
  rows<Row>(sql: string, ...parameters: (string | number | null)[]): Row[] {
    return this.#prepare(sql).all(...parameters) as Row[];
  }

  /** The binding of an isolate: every call takes time, and may fail before or after, or crash. */
  binding(isolate: Isolate): D1Database {
    const execute = async (statements: Bound[]) => {
      const { world } = this;
      await isolate.step();
      await world.sleep(world.chance.between(1, 40));
      await isolate.step();
      this.#mayFail(BEFORE_COMMIT);
      const results = this.#transaction(statements);
      if (isolate.name.endsWith("consumer"))
        for (const [i, { meta }] of results.entries())
          if (!LOGS_ATTEMPTS.test(statements[i]?.sql ?? "")) this.consumerWrites += meta.changes;
      await isolate.step();
      this.#mayFail(AFTER_COMMIT);
      await world.sleep(world.chance.between(1, 40));
      await isolate.step();
      return results;
    };
    const prepare = (sql: string, parameters: unknown[] = []): D1PreparedStatement => {
      const bound = { sql, parameters };
      return {
        bound,
        bind: (...values: unknown[]) => prepare(sql, values),
        all: async () => (await execute([bound]))[0],
        run: async () => (await execute([bound]))[0],
        first: async () => (await execute([bound]))[0]?.results[0] ?? null,
        raw: async () =>
          (await execute([bound]))[0]?.results.map((row) => Object.values(row as object)),
      } as unknown as D1PreparedStatement;
    };
    const d1 = {
      prepare,
      batch: (statements: D1PreparedStatement[]) =>
        execute(statements.map((statement) => (statement as unknown as { bound: Bound }).bound)),
      withSession: () => d1,
      getBookmark: () => "bookmark",
    };
    return d1 as unknown as D1Database;
  }

  #mayFail(faults: readonly Fault[]): void {
    const { chance } = this.world;
    if (!this.world.faults || !chance.happens(0.02)) return;
    const fault = chance.pick(faults);
    this.injected.add(fault);
    throw toError(fault);
  }

  #transaction(statements: Bound[]) {
    this.db.exec("BEGIN");
    try {
      const results = statements.map((statement) => this.#run(statement));
      this.db.exec("COMMIT");
      if (results.some(({ meta }) => meta.changes > 0)) this.onCommit();
      return results;
    } catch (error) {
      this.db.exec("ROLLBACK");
      throw error;
    }
  }

  #run({ sql, parameters }: Bound) {
    const statement = this.#prepare(sql);
    const values = parameters as (string | number | null)[];
    if (statement.columns().length > 0)
      return { success: true, results: statement.all(...values), meta: { changes: 0 } };
    const { changes } = statement.run(...values);
    return { success: true, results: [] as unknown[], meta: { changes: Number(changes) } };
  }

  #prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known) return known;
    const statement = this.db.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

interface Bound {
  sql: string;
  parameters: unknown[];
}
