import { and, eq, gt, lt, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, type Database, type Statements, write } from "../db/client.ts";
import { events, workspaces } from "../db/schema.ts";

const payload = sql`(octet_length(${events.body}) + octet_length(${events.owed}) + 150)`;

/**
 * The approximate size in bytes of an event and its deliveries in the database. SQLite moves a
 * payload of more than a quarter page to overflow pages. Accurate to a tenth of the file's growth.
 */
export const EVENT_BYTES = sql`(CASE WHEN ${payload} <= 1000 THEN ${payload}
  ELSE 500 + (${payload} + 3602) / 4092 * 4096 END + 150 * json_array_length(${events.owed}))`;

/** A workspace and how far its events have been measured. */
export type Measured = Pick<typeof workspaces.$inferSelect, "id" | "sizedTo" | "sizedBytes">;

/**
 * Measures up to `CLEANUP_MAX` more events of a workspace; each event is read once in its life.
 *
 * @param before later events must wait, because older ones may still be added among them.
 * @returns the workspace afterwards; null if there was nothing to measure.
 */
export async function measureNext(
  db: Database,
  { id, sizedTo }: Measured,
  before: string,
): Promise<Measured | null> {
  const next = db
    .select({ id: events.id, bytes: sql<number>`${EVENT_BYTES}`.as("bytes") })
    .from(events)
    .where(and(eq(events.workspaceId, id), gt(events.id, sizedTo), lt(events.id, before)))
    .orderBy(events.id)
    .limit(CLEANUP_MAX);
  const [row = null] = await db
    .update(workspaces)
    .set({ sizedTo: sql`new.last`, sizedBytes: sql`${workspaces.sizedBytes} + new.bytes` })
    .from(sql`(SELECT max(id) AS last, sum(bytes) AS bytes FROM ${next}) AS new`)
    .where(and(eq(workspaces.id, id), eq(workspaces.sizedTo, sizedTo), sql`new.last IS NOT NULL`))
    .returning({
      id: workspaces.id,
      sizedTo: workspaces.sizedTo,
      sizedBytes: workspaces.sizedBytes,
    });
  return row;
}

/**
 * Adds the size of events to their workspaces' totals, or subtracts it. Counts only events that
 * have been measured.
 */
export function resize(sign: 1 | -1, measured: SQL): Statements<unknown> {
  return write(
    qb
      .update(workspaces)
      .set({ sizedBytes: sql`${workspaces.sizedBytes} + ${sign} * some.bytes` })
      .from(
        sql`(SELECT ${events.workspaceId} AS id, sum(${EVENT_BYTES}) AS bytes ${measured}
            AND ${events.id} <= (SELECT ${workspaces.sizedTo} FROM ${workspaces} WHERE ${workspaces.id} = ${events.workspaceId})
          GROUP BY ${events.workspaceId}) AS some`,
      )
      .where(sql`${workspaces.id} = some.id`),
  );
}
