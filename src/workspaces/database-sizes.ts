import { z } from "@hono/zod-openapi";
import { and, count, desc, eq, gte, isNull, lt, sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { DAY_MS } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import { events, sizes, workspaces } from "../db/schema.ts";

/** Maximum size of a D1 database (https://developers.cloudflare.com/d1/platform/limits/). */
export const DATABASE_MAX_BYTES = 10_000_000_000;
/** Days for which a database's daily sizes are kept. */
const SIZES_KEPT_DAYS = 30;

/** A bound database: how full it is, and how fast it grows; null for what is unknown. */
export const DatabaseView = z.object({
  database: z.string().describe("its binding"),
  reachable: z.boolean().describe("it answers"),
  sizeBytes: z.int().nullable(),
  maxBytes: z.int().describe("the largest size that D1 allows"),
  workspaces: z.int().nullable().describe("those that live in it"),
  eventsLastDay: z.int().nullable().describe("events stored in the last 24 hours"),
  bytesPerDay: z
    .int()
    .nullable()
    .describe("average growth, over the days on record; null until there are two"),
  daysLeft: z
    .number()
    .nullable()
    .describe("until it is full at this rate; null if it does not grow"),
});
type DatabaseFigures = Omit<z.infer<typeof DatabaseView>, "database" | "reachable">;

/** The figures of a database that does not answer. */
export const NO_FIGURES: DatabaseFigures = {
  sizeBytes: null,
  maxBytes: DATABASE_MAX_BYTES,
  workspaces: null,
  eventsLastDay: null,
  bytesPerDay: null,
  daysLeft: null,
};

/** Finds the figures of a database. Reads one row per workspace and one per event of the last day. */
export async function findFigures(db: Database, now: number): Promise<DatabaseFigures> {
  const [growth, [[living], [recent]]] = await Promise.all([
    findGrowth(db),
    db.batch([
      db.select({ count: count() }).from(workspaces).where(isNull(workspaces.database)),
      db
        .select({ count: count() })
        .from(workspaces)
        // A cross join, so that SQLite reads one range of the events for each workspace.
        .crossJoin(events)
        .where(
          and(
            isNull(workspaces.database),
            eq(events.workspaceId, workspaces.id),
            gte(events.id, eventIdAt(now - DAY_MS)),
          ),
        ),
    ]),
  ]);
  return {
    ...growth,
    maxBytes: DATABASE_MAX_BYTES,
    workspaces: living?.count ?? 0,
    eventsLastDay: recent?.count ?? 0,
  };
}

/** How large a database is, and how fast it grows. Reads seven rows. */
export async function findGrowth(
  db: Database,
): Promise<Pick<DatabaseFigures, "bytesPerDay" | "daysLeft"> & { sizeBytes: number }> {
  const [kept, any] = await db.batch([
    db.select({ day: sizes.day, bytes: sizes.bytes }).from(sizes).orderBy(desc(sizes.day)).limit(7),
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

/** Inserts the size of a database, once a day. */
export async function insertSize(db: Database, now: number): Promise<void> {
  const day = Math.floor(now / DAY_MS);
  const [known, any] = await db.batch([
    db.select({ day: sizes.day }).from(sizes).where(eq(sizes.day, day)),
    db.run(ANY),
  ]);
  if (known.length > 0) return;
  await db.batch([
    db
      .insert(sizes)
      .values({ day, bytes: sizeAfter(any) })
      .onConflictDoNothing(),
    db.delete(sizes).where(lt(sizes.day, day - SIZES_KEPT_DAYS)),
  ]);
}
