import { env } from "cloudflare:workers";

interface Bound {
  /** The database that the tests' workspaces live in, if several are bound. */
  HOME?: string;
}

/** The name of the database that the tests' workspaces live in. */
export const HOME = (env as Env & Bound).HOME ?? "DB";

/** The database that the tests' workspaces live in. Keys and the directory are always in `env.DB`. */
export const HOME_DB = (env as unknown as Record<string, D1Database>)[HOME] as D1Database;

/** The bindings, with the replacement for `DB` used for the database that the workspaces live in. */
export function atHome({ DB, ...bindings }: Partial<Env>): Partial<Env> {
  return DB ? { ...bindings, [HOME]: DB } : bindings;
}
