import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT, WRANGLER_ENV } from "../shared/checkout.ts";
import { databasesIn, migrate, readConfig, runOn } from "../shared/databases.ts";

const DATA = join(ROOT, ".wrangler");

/**
 * Migrates the local databases of wrangler.toml, where `wrangler dev` finds them.
 *
 * @throws Error that names the database that could not be migrated.
 */
export async function migrateDatabases(): Promise<void> {
  const { d1_databases } = await readConfig(join(ROOT, "wrangler.toml"));
  const configPath = join(DATA, "databases.json");
  // Without the other bindings of wrangler.toml, which would need the Worker.
  writeFileSync(configPath, JSON.stringify({ name: "databases", d1_databases }));
  // Not `WRANGLER_LOG`, which would also silence the log of the server.
  Object.assign(process.env, WRANGLER_ENV);
  const { getPlatformProxy } = await import("wrangler");
  const { env, dispose } = await getPlatformProxy<Record<string, D1Database>>({
    configPath,
    envFiles: [],
    persist: { path: join(DATA, "state/v3") },
    remoteBindings: false,
  });
  try {
    for (const { binding, name } of databasesIn({ d1_databases }))
      await migrate(runOn(env[binding] as D1Database)).catch((error: Error) => {
        throw new Error(`The database ${name} could not be migrated: ${error.message}`);
      });
  } finally {
    await dispose();
  }
}
