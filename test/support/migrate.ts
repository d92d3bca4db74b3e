import { env } from "cloudflare:workers";

// Not by `applyD1Migrations` of `cloudflare:test`, which loads the whole Worker: not every file needs it.
const { MIGRATIONS } = env as Env & { MIGRATIONS: string[] };
await env.DB.batch(MIGRATIONS.map((statement) => env.DB.prepare(statement)));
