import { and, type Column, eq, gt, lt, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, type Database, type Executable } from "../db/client.ts";
import { attempts, deliveries, events, workspaces } from "../db/schema.ts";

/** A delivery's row without its response. */
const DELIVERY_BYTES = 290;

/** SQLite moves a row of more than a quarter page to overflow pages. */
const pagesOf = (row: SQL) => sql`(CASE WHEN ${row} <= 1000 THEN ${row}
  ELSE 500 + (${row} + 3602) / 4092 * 4096 END)`;

/**
 * The approximate size in bytes of an event and its deliveries in the database, without what is kept of
 * their attempts. Accurate to a tenth of the file's growth.
 */
const EVENT_BYTES = sql`(${pagesOf(sql`(octet_length(${events.body}) + octet_length(${events.owed}) + 150)`)} + ${DELIVERY_BYTES} * json_array_length(${events.owed}))`;

const lengthOf = (text: SQL | Column) => sql`coalesce(octet_length(${text}), 0)`;

export function attemptBytes({
  signatures,
  response,
}: Record<"signatures" | "response", SQL | Column>) {
  return pagesOf(sql`(150 + ${lengthOf(signatures)} + ${lengthOf(response)})`);
}

/** What a response adds to the size of the delivery that stores it. */
export function successBytes(response: SQL | Column): SQL {
  return sql`iif(${response} IS NULL, 0, ${pagesOf(sql`(${DELIVERY_BYTES} + ${lengthOf(response)})`)} - ${DELIVERY_BYTES})`;
}

const sumOf = (table: typeof attempts | typeof deliveries, bytes: SQL) =>
  sql`(SELECT coalesce(sum(${bytes}), 0) FROM json_each(${events.owed}) AS s
    JOIN ${table} ON ${table.subscriptionId} = s.value AND ${table.eventId} = ${events.id})`;

/** The size of an event with its deliveries and their attempts. */
export const WHOLE_BYTES = sql`(${EVENT_BYTES} + ${sumOf(deliveries, successBytes(deliveries.response))}
  + ${sumOf(attempts, attemptBytes(attempts))})`;

/** A workspace and how far its events have been measured. */
export type Measured = Pick<typeof workspaces.$inferSelect, "id" | "sizedTo" | "sizedBytes">;

/**
 * Measures up to `CLEANUP_MAX` more events of a workspace; each event is read once.
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
    .select({ id: events.id, bytes: sql<number>`${WHOLE_BYTES}`.as("bytes") })
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
 *
 * @param bytes of each; by default without its attempts.
 */
export function resize(sign: 1 | -1, measured: SQL, bytes: SQL = EVENT_BYTES): Executable {
  return qb
    .update(workspaces)
    .set({ sizedBytes: sql`${workspaces.sizedBytes} + ${sign} * some.bytes` })
    .from(
      sql`(SELECT ${events.workspaceId} AS id, sum(${bytes}) AS bytes ${measured}
            AND ${events.id} <= (SELECT ${workspaces.sizedTo} FROM ${workspaces} WHERE ${workspaces.id} = ${events.workspaceId})
          GROUP BY ${events.workspaceId}) AS some`,
    )
    .where(sql`${workspaces.id} = some.id`);
}

/**
 * Adds `bytes` of each delivery in `source` to the total of its workspace, if its event has been
 * measured already: events are measured once. Writes nothing for a new event.
 */
export function addBytes(bytes: SQL, source: SQL, condition = sql`true`) {
  return qb
    .update(workspaces)
    .set({ sizedBytes: sql`${workspaces.sizedBytes} + kept.bytes` })
    .from(
      sql`(SELECT ${deliveries.workspaceId} AS id, sum(${bytes}) AS bytes ${source}
          JOIN ${workspaces} AS own ON own.id = ${deliveries.workspaceId} AND ${deliveries.eventId} <= own.sized_to
        WHERE ${condition} GROUP BY 1) AS kept`,
    )
    .where(sql`${workspaces.id} = kept.id`);
}
