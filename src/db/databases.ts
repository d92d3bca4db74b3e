import { connect, type Database, type Guard } from "./client.ts";

/**
 * The database that is always bound. It holds the workspace directory (a routing table that maps each workspace to
 * its database), all API keys, and the workspaces that live in no other database.
 */
export const DIRECTORY = "DB";

const NAME = /^DB(_[2-9]|_[1-9]\d+)?$/;

/** Whether a binding of this name is one of our databases: `DB`, `DB_2`, `DB_3`, and so on. */
export function isDatabaseName(name: string): boolean {
  return NAME.test(name);
}

/** Lists the names of the bound databases in order: `DB`, `DB_2`, `DB_3`, and so on. */
export function databaseNames(env: Env): string[] {
  const numberOf = (name: string) => Number(name.slice("DB_".length));
  return Object.keys(env)
    .filter(isDatabaseName)
    .sort((a, b) => numberOf(a) - numberOf(b));
}

/** Whether only one database is bound, so that the directory need not be read. */
export function hasOneDatabase(env: Env): boolean {
  return !("DB_2" in env) && databaseNames(env).length === 1;
}

export function isBound(env: Env, name: string): boolean {
  return isDatabaseName(name) && name in env;
}

/** Returns a database binding by its name. @throws Error if there is none. */
export function bindingOf(env: Env, name: string): D1Database {
  const binding = isBound(env, name) && (env as unknown as Record<string, D1Database>)[name];
  if (!binding) throw new Error(`no database is bound as ${name}: see [[d1_databases]]`);
  return binding;
}

export function openDirectory(env: Env): Database {
  return connect(env.DB);
}

/** Opens a database by its name. @param guard precedes its transactions. @throws Error if there is none. */
export function openDatabase(env: Env, name: string, guard?: Guard): Database {
  return connect(bindingOf(env, name), guard);
}
