import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { isDatabaseName } from "../../src/contract/database-names.ts";
import { ROOT } from "./checkout.ts";
import type { Cloudflare } from "./cloudflare.ts";

const PAGE_SIZE = 100;

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

/** The names of the migrations of this checkout. */
export function migrationsHere(): string[] {
  return readdirSync(join(ROOT, "migrations")).filter((name) => name.endsWith(".sql"));
}

/** The statement that reads which migrations a database has. */
export const APPLIED_MIGRATIONS = "SELECT name FROM d1_migrations";

/**
 * Whether a database lacks a migration. If not, wrangler, which takes seconds to start, need not run.
 *
 * @param applied the rows that `APPLIED_MIGRATIONS` reads.
 * @param known the names of all migrations.
 */
export function lacksMigration(applied: { name?: unknown }[], known: string[]): boolean {
  const names = new Set(applied.map(({ name }) => name));
  return known.some((name) => !names.has(name));
}
