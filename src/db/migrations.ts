import { sql } from "drizzle-orm";
import journal from "../../migrations/meta/_journal.json" with { type: "json" };
import type { Database } from "./client.ts";

/** The migrations of this version, by the names under which wrangler records them. */
const MIGRATIONS = journal.entries.map(({ tag }) => `${tag}.sql`);

/** Finds the migrations of this version that a database lacks, for example after a deployment by another tool. */
export async function findUnapplied(db: Database): Promise<string[]> {
  const applied = await db.all<{ name: string }>(sql`SELECT name FROM d1_migrations`);
  return MIGRATIONS.filter((name) => !applied.some((each) => each.name === name));
}
