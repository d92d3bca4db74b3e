import { isDatabaseName } from "../contract/database-names.ts";
import { type Database, openDatabase } from "./client.ts";

/**
 * The database that is always bound. It holds the directory, which tells where each workspace lives,
 * the API keys, and the data of the workspaces that live nowhere else.
 */
export const DIRECTORY = "DB";

/** The names of the databases that are bound: `DB`, `DB_2`, `DB_3`, and so on. */
export function databaseNames(env: Env): string[] {
  const numberOf = (name: string) => Number(name.slice("DB_".length));
  return Object.keys(env)
    .filter(isDatabaseName)
    .sort((a, b) => numberOf(a) - numberOf(b));
}

/** Whether there is but one, so that nobody needs to look up where a workspace lives. */
export function hasOneDatabase(env: Env): boolean {
  return !("DB_2" in env) && databaseNames(env).length === 1;
}

/** A database by its name. @throws Error when none of that name is bound. */
export function bindingOf(env: Env, name: string): D1Database {
  const binding = isDatabaseName(name) && (env as unknown as Record<string, D1Database>)[name];
  if (!binding) throw new Error(`no database is bound as ${name}: see [[d1_databases]]`);
  return binding;
}

/** The database that holds the directory. */
export function openDirectory(env: Env): Database {
  return openDatabase(env.DB);
}

/** Opens a database by its name. @throws Error when none of that name is bound. */
export function openNamed(env: Env, name: string): Database {
  return openDatabase(bindingOf(env, name));
}
