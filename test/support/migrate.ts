import { env } from "cloudflare:workers";
import { isDatabaseName } from "../../src/contract/database-names.ts";

// Not by `applyD1Migrations` of `cloudflare:test`, which loads the whole Worker: not every file needs it.
const { MIGRATIONS, ...bindings } = env as Env & { MIGRATIONS: string[] };
for (const [name, db] of Object.entries(bindings) as [string, D1Database][])
  if (isDatabaseName(name)) await db.batch(MIGRATIONS.map((query) => db.prepare(query)));
