import { env } from "cloudflare:workers";

interface Bound {
  /** The database that the tests' workspaces live in, if several are bound. */
  DATABASE?: string;
}

/** The name of the database that the tests' workspaces live in. */
export const DATABASE = (env as Env & Bound).DATABASE ?? "DB";

/** The database that the tests' workspaces live in. Keys and the directory are always in `env.DB`. */
export const WORKSPACE_DB = (env as unknown as Record<string, D1Database>)[DATABASE] as D1Database;

/** The bindings, with the replacement for `DB` used for the database that the workspaces live in. */
export function inDatabase({ DB, ...bindings }: Partial<Env>): Partial<Env> {
  return DB ? { ...bindings, [DATABASE]: DB } : bindings;
}
