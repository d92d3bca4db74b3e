import { z } from "@hono/zod-openapi";
import { count, desc, isNull, lte, sql } from "drizzle-orm";
import { DAY_MS } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import { sizes, workspaces } from "../db/schema.ts";

/** Maximum size of a D1 database (https://developers.cloudflare.com/d1/platform/limits/). */
export const DATABASE_MAX_BYTES = 10_000_000_000;
/** Days for which a database's daily sizes are kept, and its growth averaged. */
const SIZES_KEPT_DAYS = 7;

/** A bound database: how full it is, and how fast it grows; null for what is unknown. */
export const DatabaseView = z.object({
  database: z.string().describe("its binding"),
  sizeBytes: z
    .int()
    .nullable()
    .describe(`of ${DATABASE_MAX_BYTES / 1e9} GB; null if it does not answer`),
  workspaces: z.int().nullable().describe("those that live in it"),
  bytesPerDay: z
    .int()
    .nullable()
    .describe("average growth, over the days on record; null until there are two"),
  daysLeft: z
    .number()
    .nullable()
    .describe("until it is full at this rate; null if it does not grow"),
});
type DatabaseFigures = Omit<z.infer<typeof DatabaseView>, "database">;

/** The figures of a database that does not answer. */
export const NO_FIGURES: DatabaseFigures = {
  sizeBytes: null,
  workspaces: null,
  bytesPerDay: null,
  daysLeft: null,
};

/** Finds the figures of a database. Reads one row per workspace. */
export async function findFigures(db: Database): Promise<DatabaseFigures> {
  const living = db.select({ count: count() }).from(workspaces).where(isNull(workspaces.database));
  const [growth, [counted]] = await Promise.all([findGrowth(db), living]);
  return { ...growth, workspaces: counted?.count ?? 0 };
}

/** How large a database is, and how fast it grows. Reads seven rows. */
export async function findGrowth(
  db: Database,
): Promise<Pick<DatabaseFigures, "bytesPerDay" | "daysLeft"> & { sizeBytes: number }> {
  const [kept, any] = await db.batch([
    db.select().from(sizes).orderBy(desc(sizes.day)),
    db.run(ANY),
  ]);
  const sizeBytes = sizeAfter(any);
  const [newest, oldest] = [kept.at(0), kept.at(-1)];
  const bytesPerDay =
    newest && oldest && newest.day > oldest.day
      ? Math.round((newest.bytes - oldest.bytes) / (newest.day - oldest.day))
      : null;
  const left = Math.max(0, DATABASE_MAX_BYTES - sizeBytes);
  const daysLeft = bytesPerDay !== null && bytesPerDay > 0 ? Math.floor(left / bytesPerDay) : null;
  return { sizeBytes, bytesPerDay, daysLeft };
}

export async function findSize(db: Database): Promise<number> {
  return sizeAfter(await db.run(ANY));
}

/** Any query will do: D1 returns the size with every answer. */
const ANY = sql`SELECT 1`;

const sizeAfter = ({ meta }: D1Result) => meta.size_after ?? 0;

/** Notes the size of a database, once a day, and forgets old ones. */
export async function insertSize(db: Database, now: number): Promise<void> {
  const day = Math.floor(now / DAY_MS);
  const bytes = await findSize(db);
  await db.batch([
    db.insert(sizes).values({ day, bytes }).onConflictDoNothing(),
    db.delete(sizes).where(lte(sizes.day, day - SIZES_KEPT_DAYS)),
  ]);
}
