import { applyD1Migrations, type D1Migration } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { databaseNames } from "../../src/db/databases.ts";

const { MIGRATIONS } = env as Env & { MIGRATIONS: D1Migration[] };
for (const name of databaseNames(env))
  await applyD1Migrations(
    (env as unknown as Record<string, D1Database>)[name] as D1Database,
    MIGRATIONS,
  );
