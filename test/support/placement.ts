import { applyD1Migrations, type D1Migration, reset } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { drizzle } from "drizzle-orm/d1";
import { beforeAll } from "vitest";

const bindings = env as Env & { DB_2?: D1Database; DB_3?: D1Database; MIGRATIONS: D1Migration[] };
const { DB, DB_2, DB_3, MIGRATIONS } = bindings as Required<typeof bindings>;

/** The databases of the runtime. Most tests see the first one alone, as a deployment begins. */
export const DATABASES = { DB, DB_2, DB_3 };
export type DatabaseName = keyof typeof DATABASES;

/** The name of the database that the tests' workspaces live in. */
export let DATABASE: DatabaseName = "DB";

/** The database that the tests' workspaces live in. Keys and the directory are always in `env.DB`. */
export let WORKSPACE_DB = DB;

/** Drizzle's client for that database. */
export let db = drizzle(DB);

function placeWorkspacesIn(name: DatabaseName): void {
  DATABASE = name;
  WORKSPACE_DB = DATABASES[name];
  db = drizzle(WORKSPACE_DB);
}

async function isEmpty(db: D1Database): Promise<boolean> {
  return !(await db.prepare("SELECT 1 FROM sqlite_master WHERE name = 'workspaces'").first());
}

/**
 * Empties all storage, because files share a runtime, and binds one database. What the file before has left running in
 * the background may keep a database from being deleted.
 */
export async function resetStorage(): Promise<void> {
  do await reset();
  while (!(await Promise.all(Object.values(DATABASES).map(isEmpty))).every(Boolean));
  delete bindings.DB_2;
  delete bindings.DB_3;
  placeWorkspacesIn("DB");
  await applyD1Migrations(DB, MIGRATIONS);
}

/** Lets a file see three databases from this call on. The tests' workspaces live in the second one. */
export function useThreeDatabases(): void {
  Object.assign(bindings, { DB_2, DB_3 });
  placeWorkspacesIn("DB_2");
  beforeAll(() => Promise.all([DB_2, DB_3].map((other) => applyD1Migrations(other, MIGRATIONS))));
}

/** The bindings, with the replacement for `DB` used for the database that the workspaces live in. */
export function inDatabase({ DB, ...others }: Partial<Env>): Partial<Env> {
  return DB ? { ...others, [DATABASE]: DB } : others;
}
