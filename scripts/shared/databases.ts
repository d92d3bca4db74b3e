import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { isDatabaseName } from "../../src/db/databases.ts";
import { ROOT } from "./checkout.ts";
import type { Cloudflare } from "./cloudflare.ts";

const PAGE_SIZE = 100;
const MIGRATIONS = join(ROOT, "migrations");

export const ListedDatabase = z.object({
  name: z.string(),
  uuid: z.string(),
  jurisdiction: z.string().nullish(),
});
/** A database of the account. */
export type ListedDatabase = z.infer<typeof ListedDatabase>;

/** A database of the configuration. */
export interface ConfiguredDatabase {
  binding: string;
  name: string;
  /** Its id, if the configuration has one, because the database was created elsewhere. */
  id: string | undefined;
}

/**
 * Lists the databases that a configuration binds for the service. Other bindings of D1 belong to its owner.
 *
 * @throws Error when it binds none as `DB`, or one without a name.
 */
export function databasesIn({
  d1_databases,
}: Pick<Unstable_Config, "d1_databases">): ConfiguredDatabase[] {
  const databases = d1_databases
    .filter(({ binding }) => isDatabaseName(binding))
    .map(({ binding, database_name: name, database_id: id }) => {
      if (!name) throw new Error(`wrangler.toml gives ${binding} no database_name`);
      return { binding, name, id };
    });
  if (!databases.some(({ binding }) => binding === "DB"))
    throw new Error("wrangler.toml binds no database as DB");
  return databases;
}

/**
 * Reads a configuration of wrangler.
 *
 * @param env the name of one of its environments; production when left out.
 * @throws Error if it has no such environment.
 */
export async function readConfig(config: string, env?: string): Promise<Unstable_Config> {
  // It is imported here because it is large, and a command that ends earlier does not need it.
  const { experimental_readRawConfig, unstable_readConfig } = await import("wrangler");
  if (env !== undefined) {
    const { rawConfig } = experimental_readRawConfig({ config });
    if (!Object.hasOwn(rawConfig.env ?? {}, env))
      throw new Error(
        `${basename(config)} has no [env.${env}]; without --env, a command acts on production`,
      );
  }
  return unstable_readConfig({ config, ...(env !== undefined && { env }) }, { hideWarnings: true });
}

/** Lists the databases of an account. */
export async function listDatabases({ call }: Cloudflare) {
  const databases: ListedDatabase[] = [];
  for (let page = 1; databases.length === (page - 1) * PAGE_SIZE; page++) {
    const path = `/d1/database?per_page=${PAGE_SIZE}&page=${page}`;
    databases.push(...(await call(z.array(ListedDatabase), "GET", path)));
  }
  return databases;
}

/** Finds a configured database among those of an account, by its id if the configuration has one. */
export function findDatabase<T extends { name: string; uuid: string }>(
  listed: T[],
  { id, name }: ConfiguredDatabase,
): T | undefined {
  return listed.find((each) => (id ? each.uuid === id : each.name === name));
}

/** The names of the migrations of this checkout, in their order. */
export function migrationsHere(): string[] {
  return readdirSync(MIGRATIONS)
    .filter((name) => name.endsWith(".sql"))
    .toSorted();
}

/** Runs SQL in one transaction. @returns the rows of its last statement. */
export type RunSql = (sql: string) => Promise<{ name?: unknown }[]>;

const Executed = z.array(z.object({ results: z.array(z.record(z.string(), z.unknown())) }));

/** How long a migration may take. */
const MIGRATION_TIMEOUT_MS = 300_000;

/** Opens a database of an account for SQL. */
export function runIn({ call }: Cloudflare, { uuid }: Pick<ListedDatabase, "uuid">): RunSql {
  return async (sql) => {
    const path = `/d1/database/${uuid}/query`;
    const executed = await call(Executed, "POST", path, { sql }, MIGRATION_TIMEOUT_MS);
    return executed.at(-1)?.results ?? [];
  };
}

/** Opens a local database for SQL. */
export function runOn(db: D1Database): RunSql {
  return async (sql) => {
    const [last] = await db.batch<{ name?: unknown }>([db.prepare(sql)]);
    return last?.results ?? [];
  };
}

/** The statement that reads which migrations a database has, from the table of `wrangler d1 migrations`. */
export const APPLIED_MIGRATIONS = "SELECT name FROM d1_migrations";

/** Creates that table. */
export const MIGRATIONS_TABLE =
  "CREATE TABLE IF NOT EXISTS d1_migrations (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL)";

/**
 * Applies the migrations of this checkout that a database lacks, as `wrangler d1 migrations apply` does: each one and its
 * entry in one transaction. Wrangler takes seconds to start.
 *
 * @param onMissing is called before the first of them, if there are any.
 */
export async function migrate(run: RunSql, onMissing = () => {}): Promise<void> {
  await run(MIGRATIONS_TABLE);
  const applied = new Set((await run(APPLIED_MIGRATIONS)).map(({ name }) => name));
  const missing = migrationsHere().filter((name) => !applied.has(name));
  if (missing.length > 0) onMissing();
  for (const name of missing) {
    const statements = readFileSync(join(MIGRATIONS, name), "utf8");
    await run(`${statements}\nINSERT INTO d1_migrations (name) VALUES ('${name}');`);
  }
}
