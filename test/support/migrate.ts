import { env } from "cloudflare:workers";

// Not by `applyD1Migrations` of `cloudflare:test`, which loads the whole Worker: not every file needs it.
const { MIGRATIONS, ...bindings } = env as Env & { MIGRATIONS: string[] };
for (const [name, db] of Object.entries(bindings) as [string, D1Database][])
  if (/^DB(_\d+)?$/.test(name)) await db.batch(MIGRATIONS.map((query) => db.prepare(query)));
