import { z } from "@hono/zod-openapi";
import type { Cloudflare } from "../shared/cloudflare.ts";
import {
  type ConfiguredDatabase,
  findDatabase,
  listDatabases,
  migrate,
  runIn,
} from "../shared/databases.ts";

/** A row of D1, by column. */
export type Row = Record<string, string | number | null>;

/** The tables that a restore puts back, so that foreign keys hold: a table stands after those it refers to. */
export const TABLES = ["workspaces", "api_keys", "subscriptions", "audit_trail"] as const;
export type Table = (typeof TABLES)[number];
export type Tables = Record<Table, Row[]>;

/** How much the clocks differ, at most, that time stamps come from. */
export const CLOCKS_DIFFER_MS = 60_000;

/**
 * Whether a row was created after the restored time, so that the restore cannot have brought it back. The API stays up
 * during a restore, so people may create workspaces and subscriptions after the tables were noted.
 *
 * @param restoredTo Unix milliseconds.
 */
export function isNewer({ created_at }: Row, restoredTo: number): boolean {
  return Number(created_at) > restoredTo + CLOCKS_DIFFER_MS;
}

/** Whether a row was created before the restored time. */
export function isOlder({ created_at }: Row, restoredTo: number): boolean {
  return Number(created_at) < restoredTo - CLOCKS_DIFFER_MS;
}

const Rows = z.array(z.record(z.string(), z.union([z.string(), z.number(), z.null()])));
const Executed = z.array(z.object({ results: Rows }));
const Bookmark = z.object({ bookmark: z.string() });

/** How long Time Travel may take with a large database. */
const RESTORE_TIMEOUT_MS = 300_000;

/** Runs statements in a database, named by its binding. @returns the rows of each. */
export type Execute = (database: string, statements: string[]) => Promise<Row[][]>;

/** The databases of a configuration, named by their bindings. */
export interface Databases {
  execute: Execute;
  /** Returns the bookmark of now, which Time Travel can go back to. */
  bookmark(database: string): Promise<string>;
  /** Takes a database back with Time Travel. @param time in ISO 8601. */
  goBack(database: string, time: string): Promise<void>;
  /** Applies the migrations that a database lacks. */
  migrate(database: string): Promise<void>;
}

/**
 * Opens the databases of a configuration through Cloudflare's API. With wrangler, each call would take seconds, and
 * other users of this machine would see the encrypted secrets in its command line.
 */
export async function openDatabases(
  cloudflare: Cloudflare,
  configured: ConfiguredDatabase[],
): Promise<Databases> {
  const { call } = cloudflare;
  const listed = await listDatabases(cloudflare);
  const databaseOf = (binding: string) => {
    const database = configured.find((each) => each.binding === binding);
    const found = database && findDatabase(listed, database);
    if (!found) throw new Error(`The account has no database for ${binding}.`);
    return found;
  };
  const pathOf = (binding: string) => `/d1/database/${databaseOf(binding).uuid}`;
  const findBookmark = async (binding: string, when = "") =>
    (await call(Bookmark, "GET", `${pathOf(binding)}/time_travel/bookmark${when}`)).bookmark;
  return {
    async execute(binding, statements) {
      const path = `${pathOf(binding)}/query`;
      const body = { sql: statements.join(";\n") };
      const executed = await call(Executed, "POST", path, body).catch((error: Error) => {
        throw new Error(`${binding} cannot be queried: ${error.message}`);
      });
      return executed.map(({ results }) => results);
    },
    bookmark: findBookmark,
    async goBack(binding, time) {
      const bookmark = await findBookmark(binding, `?timestamp=${time}`);
      const path = `${pathOf(binding)}/time_travel/restore?bookmark=${bookmark}`;
      await call(z.unknown(), "POST", path, undefined, RESTORE_TIMEOUT_MS);
    },
    migrate: (binding) =>
      migrate(runIn(cloudflare, databaseOf(binding))).catch((error: Error) => {
        throw new Error(`The migrations of ${binding} failed: ${error.message}`);
      }),
  };
}

/** Writes a value as an SQL literal. */
export function literal(value: string | number | null): string {
  if (value === null) return "NULL";
  return typeof value === "number" ? String(value) : `'${value.replaceAll("'", "''")}'`;
}

/** Runs a statement. @returns its rows. */
export async function query(execute: Execute, database: string, sql: string): Promise<Row[]> {
  const [rows = []] = await execute(database, [sql]);
  return rows;
}

/** How long a call may take, at most. The bound lets the query use the index. */
const CALL_MAX_MS = 3_600_000;

/**
 * Selects the audit trail since a time, without checks, which are many. A call that had started before that time and
 * ended after it is included, because it may have had its effect after it.
 */
const trailSince = (at: number) =>
  `SELECT * FROM audit_trail WHERE at >= ${at - CALL_MAX_MS} AND at + duration_ms >= ${at - CLOCKS_DIFFER_MS} AND method NOT IN ('backlog', 'ledger', 'health', 'databases') ORDER BY at`;

/**
 * Reads the tables with the decisions of people. Keys and the audit trail are in `DB` only.
 *
 * @param at the time from which on the audit trail is read, in Unix milliseconds.
 */
export async function readTables(execute: Execute, database: string, at: number): Promise<Tables> {
  const own = ["SELECT * FROM workspaces", "SELECT * FROM subscriptions"];
  const central = ["SELECT * FROM api_keys", trailSince(at)];
  const isDirectory = database === "DB";
  const [workspaces = [], subscriptions = [], apiKeys = [], trail = []] = isDirectory
    ? await execute(database, [...own, ...central])
    : await execute(database, own);
  return {
    workspaces,
    api_keys: apiKeys,
    subscriptions,
    audit_trail: isDirectory ? trail : await query(execute, "DB", trailSince(at)),
  };
}
