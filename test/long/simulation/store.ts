import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { getTableColumns, getTableName } from "drizzle-orm";
import { MOVED } from "../../../src/workspaces/table-registry.ts";
import { D1_FAULTS, type Fault, toError } from "../../support/service-faults.ts";
import type { Isolate, World } from "./world.ts";

const BEFORE_COMMIT = D1_FAULTS.filter(({ moment }) => moment === "before");
const AFTER_COMMIT = D1_FAULTS.filter(({ moment }) => moment === "after");

/** Statements that may change records, or what is owed. */
const CHANGES_OWED =
  /(insert into|update|delete from) "(events|leads|runs|workspaces)"|(insert into|delete from) "deliveries"/i;

const MIGRATIONS = join(import.meta.dirname, "../../../migrations");
const SCHEMA = readdirSync(MIGRATIONS)
  .filter((name) => name.endsWith(".sql"))
  .sort()
  .map((file) => readFileSync(join(MIGRATIONS, file), "utf8"))
  .join("\n");

/** The longest that a slow request to D1, or its reply, is on its way when nothing fails. */
const SLOW_REPLY_MS = 1_500;
let stores = 0;

/**
 * Real SQLite databases that look like D1 to the code under test: `DB`, and others where a world has
 * them.
 */
export class Store {
  /** The names of the databases. */
  readonly names: string[];
  readonly #databases: DatabaseSync[];
  /**
   * Sees them as one, in which each workspace has the rows of the database that it lives in. A single
   * one is that.
   */
  readonly #whole: DatabaseSync;
  /** When events were erased with their leads, in true time; Infinity while they are. */
  readonly erasedAt = new Map<string, number>();
  /** Automations that were removed at some time, with the runs that they had. */
  readonly removedAutomations = new Set<string>();
  /** When each event was committed, in true time. */
  readonly committedAt = new Map<string, number>();
  /** The secrets of subscriptions. */
  readonly secrets = new Map<string, string>();
  /** How D1 has failed. */
  readonly injected = new Set<Fault>();
  /** How many transactions have written anything. */
  commits = 0;
  /** Called at the very moment when a write of records, or of what is owed, has been committed. */
  onCommit: () => void = () => {};
  readonly #statements = new Map<DatabaseSync, Map<string, Prepared>>();

  readonly world: World;
  readonly createdAt: number;

  constructor(world: World, count: number) {
    this.world = world;
    this.createdAt = world.now;
    this.names = Array.from({ length: count }, (_, i) => (i === 0 ? "DB" : `DB_${i + 1}`));
    const store = stores++;
    const uris = this.names.map((name) =>
      count === 1 ? ":memory:" : `file:simulation-${store}-${name}?mode=memory&cache=shared`,
    );
    this.#databases = uris.map((uri) => new DatabaseSync(uri));
    for (const database of this.#databases) database.exec(SCHEMA);
    this.#whole = count === 1 ? (this.#databases[0] as DatabaseSync) : this.#openWhole(uris);
  }

  #openWhole(uris: string[]): DatabaseSync {
    const whole = new DatabaseSync(":memory:");
    for (const [i, uri] of uris.entries()) whole.exec(`ATTACH '${uri}' AS d${i}`);
    const everywhere = (select: (schema: string) => string) =>
      uris.map((_, i) => select(`d${i}`)).join(" UNION ALL ");
    // During a switch, both databases may say that it lives there: the directory knows.
    const living = (d: string) =>
      `(SELECT id FROM d0.workspaces WHERE coalesce(database, 'DB') = '${this.names[Number(d.slice(1))]}')`;
    const view = (table: string, where: (schema: string) => string) =>
      whole.exec(
        `CREATE TEMP VIEW ${table} AS ${everywhere(
          (d) => `SELECT * FROM ${d}.${table} WHERE ${where(d)}`,
        )}`,
      );
    view("workspaces", (d) => `id IN ${living(d)}`);
    for (const { table } of MOVED.flatMap((owned) => [owned, ...owned.children]))
      view(getTableName(table), (d) =>
        "workspaceId" in getTableColumns(table) ? `workspace_id IN ${living(d)}` : "true",
      );
    return whole;
  }

  /** The database that a workspace lives in. */
  homeOf(workspaceId: string): string {
    if (this.names.length === 1) return "DB";
    const sql = "SELECT database FROM d0.workspaces WHERE id = ?";
    const [line] = this.rows<{ database: string | null }>(sql, workspaceId);
    return line?.database ?? "DB";
  }

  /** Whether the sweep has a workspace to move, or something that one left behind to delete. */
  isAnybodyMoving(): boolean {
    if (this.names.length === 1) return false;
    const held = (d: string) => `SELECT 1 FROM ${d}.workspaces WHERE move_id IS NOT NULL`;
    const moving = this.names.map((_, i) => `SELECT 1 FROM d${i}.moves UNION ALL ${held(`d${i}`)}`);
    return this.rows(`${moving.join(" UNION ALL ")} LIMIT 1`).length > 0;
  }

  close(): void {
    for (const database of new Set([this.#whole, ...this.#databases])) database.close();
  }

  /**
   * Rows of a query, immediately and without faults: for the checks, not for the code under test.
   */
  rows<Row>(sql: string, ...parameters: (string | number | null)[]): Row[] {
    return this.#prepare(this.#whole, sql).statement.all(...parameters) as Row[];
  }

  /** The binding of an isolate: every call takes time, and may fail before or after, or crash. */
  binding(isolate: Isolate, name = "DB"): D1Database {
    const database = this.#databases[this.names.indexOf(name)] as DatabaseSync;
    const execute = (statements: Bound[]) => isolate.request(() => transact(statements));
    const transact = async (statements: Bound[]) => {
      const { world } = this;
      await isolate.step();
      isolate.spend(statements.length);
      if (world.isDown("d1")) {
        await world.sleep(world.chance.pick([1, 1_000, 30_000]));
        await isolate.step();
        throw toError(world.chance.pick(BEFORE_COMMIT));
      }
      await world.sleep(this.#mayHang(isolate) ?? this.#delayMs(isolate));
      await isolate.step();
      this.#mayFail(world.odds.d1Fails, BEFORE_COMMIT);
      const results = this.#transaction(database, statements);
      await isolate.step();
      this.#mayFail(world.odds.d1LosesReply, AFTER_COMMIT);
      await world.sleep(this.#delayMs(isolate));
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
    return {
      prepare,
      batch: (statements: D1PreparedStatement[]) =>
        execute(statements.map((statement) => (statement as unknown as { bound: Bound }).bound)),
    } as unknown as D1Database;
  }

  /**
   * How long a request, or its reply, is on its way: of the platform's, some take so long that a later
   * recording overtakes them.
   */
  #delayMs({ name }: Isolate): number {
    const { chance, odds } = this.world;
    if (odds.d1IsSlow > 0 && chance.happens(odds.d1IsSlow)) return chance.between(1_000, 30_000);
    const isSlow = name.startsWith("platform") && chance.happens(0.1);
    return isSlow ? chance.between(300, SLOW_REPLY_MS) : chance.between(1, 40);
  }

  /** For how long a call hangs, of those who move workspaces: others go on with that meanwhile. */
  #mayHang({ name }: Isolate): number | null {
    const { chance, odds } = this.world;
    const isMover = this.names.length > 1 && /moveWorkspace|scheduled/.test(name);
    return isMover && chance.happens(odds.moveHangs) ? chance.between(1_000, 180_000) : null;
  }

  #mayFail(probability: number, faults: readonly Fault[]): void {
    const { chance } = this.world;
    if (!chance.happens(probability)) return;
    const fault = chance.pick(faults);
    this.injected.add(fault);
    throw toError(fault);
  }

  #transaction(database: DatabaseSync, bound: Bound[]) {
    const control = (sql: string) => this.#prepare(database, sql).statement.run();
    control("BEGIN");
    try {
      const prepared = bound.map(({ sql }) => this.#prepare(database, sql));
      const results = prepared.map((one, i) => execute(one, bound[i]?.parameters as Values));
      control("COMMIT");
      const written = prepared.filter((_, i) => (results[i]?.meta.changes ?? 0) > 0);
      if (written.length > 0) this.commits++;
      if (written.some(({ changesOwed }) => changesOwed)) this.onCommit();
      return results;
    } catch (error) {
      control("ROLLBACK");
      throw error;
    }
  }

  #prepare(database: DatabaseSync, sql: string): Prepared {
    const statements = this.#statements.get(database) ?? new Map<string, Prepared>();
    this.#statements.set(database, statements);
    const known = statements.get(sql);
    if (known) return known;
    // SQLite compiles a statement anew whenever a parameter that is its whole limit is bound.
    const statement = database.prepare(sql.replaceAll(/\blimit \?/gi, "LIMIT 0 + ?"));
    const prepared = {
      statement,
      hasRows: statement.columns().length > 0,
      isReturning: /\bRETURNING\b/i.test(sql),
      changesOwed: CHANGES_OWED.test(sql),
    };
    statements.set(sql, prepared);
    return prepared;
  }
}

interface Prepared {
  statement: StatementSync;
  hasRows: boolean;
  isReturning: boolean;
  changesOwed: boolean;
}

type Values = (string | number | null)[];

function execute({ statement, hasRows, isReturning }: Prepared, values: Values) {
  if (hasRows) {
    const results = statement.all(...values);
    return { success: true, results, meta: { changes: isReturning ? results.length : 0 } };
  }
  const changes = Number(statement.run(...values).changes);
  return { success: true, results: [] as unknown[], meta: { changes } };
}

interface Bound {
  sql: string;
  parameters: unknown[];
}
