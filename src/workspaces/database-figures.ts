import { z } from "@hono/zod-openapi";
import { count, isNull, sql } from "drizzle-orm";
import type { Database } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";

/** Maximum size of a D1 database (https://developers.cloudflare.com/d1/platform/limits/). */
export const DATABASE_MAX_BYTES = 10_000_000_000;

/** A bound database with its figures; a figure that is unknown is null. */
export const DatabaseView = z.object({
  database: z.string().describe("its binding"),
  sizeBytes: z
    .int()
    .nullable()
    .describe(`out of ${DATABASE_MAX_BYTES / 1e9} GB; null if the database does not respond`),
  workspaces: z.int().nullable().describe("number of workspaces that live in it"),
});
type DatabaseFigures = Omit<z.infer<typeof DatabaseView>, "database">;

/** The figures of a database that does not respond. */
export const NO_FIGURES: DatabaseFigures = { sizeBytes: null, workspaces: null };

/** Finds the figures of a database. Reads one row per workspace. */
export async function findFigures(db: Database): Promise<DatabaseFigures> {
  const living = db.select({ count: count() }).from(workspaces).where(isNull(workspaces.database));
  const [sizeBytes, [counted]] = await Promise.all([findSize(db), living]);
  return { sizeBytes, workspaces: counted?.count ?? 0 };
}

/** Returns the size of a database in bytes, which D1 returns with the response to every query. */
export async function findSize(db: Database): Promise<number> {
  const { meta } = await db.run(sql`SELECT 1`);
  return meta.size_after ?? 0;
}
