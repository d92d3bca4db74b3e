import { env } from "cloudflare:workers";

interface Bound {
  /** The database that the workspaces of the tests live in, where several are bound. */
  HOME?: string;
}

/** The name of the database that the workspaces of the tests live in. */
export const HOME = (env as Env & Bound).HOME ?? "DB";

/** That database. The keys and the directory are in `env.DB`, wherever it is. */
export const HOME_DB = (env as unknown as Record<string, D1Database>)[HOME] as D1Database;

/** Bindings in which what stands in for `DB` stands in for the database that the workspaces live in. */
export function atHome({ DB, ...bindings }: Partial<Env>): Partial<Env> {
  return DB ? { ...bindings, [HOME]: DB } : bindings;
}
