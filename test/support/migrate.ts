import { applyD1Migrations, type D1Migration, reset } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { isDatabaseName } from "../../src/db/databases.ts";

const { MIGRATIONS, ...bindings } = env as Env & { MIGRATIONS: D1Migration[] };
const databases = Object.entries(bindings).flatMap(([name, db]) =>
  isDatabaseName(name) ? [db as D1Database] : [],
);

async function isEmpty(db: D1Database): Promise<boolean> {
  return !(await db.prepare("SELECT 1 FROM sqlite_master WHERE name = 'workspaces'").first());
}

// Files share a runtime, and each begins with empty storage. What the file before has left running in
// the background may keep a database from being deleted.
do await reset();
while (!(await Promise.all(databases.map(isEmpty))).every(Boolean));
for (const db of databases) await applyD1Migrations(db, MIGRATIONS);
