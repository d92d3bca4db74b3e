import { env } from "cloudflare:workers";
import { isDatabaseName } from "../../src/contract/database-names.ts";

// Not with `applyD1Migrations` of `cloudflare:test`, which loads the whole Worker for every file.
const { MIGRATIONS, ...bindings } = env as Env & { MIGRATIONS: string[] };
for (const [name, db] of Object.entries(bindings) as [string, D1Database][])
  if (isDatabaseName(name)) await db.batch(MIGRATIONS.map((query) => db.prepare(query)));
