import { type SQL, sql } from "drizzle-orm";
import { CLEANUP_MAX } from "../contract/limits.ts";
import { commit, type Database, rows, type Statements, write } from "../db/client.ts";
import { events, workspaces } from "../db/schema.ts";

const payload = sql`(octet_length(e.body) + octet_length(e.owed) + 150)`;

/**
 * What the event `e` takes in the database with its deliveries, in bytes: what does not fit into a
 * quarter of a page goes to pages of its own. Within a tenth of what the file grows by.
 */
export const EVENT_BYTES = sql`(CASE WHEN ${payload} <= 1000 THEN ${payload}
  ELSE 500 + (${payload} + 3602) / 4092 * 4096 END + 150 * json_array_length(e.owed))`;

/** A workspace, as far as its events have been measured. */
export interface Measured {
  id: string;
  /** The last event whose size is known. */
  sizedTo: string;
  /** What the events up to that one take. */
  sizedBytes: number;
}

/**
 * Measures the next events of a workspace, `CLEANUP_MAX` at the most: each is read once in its life.
 *
 * @param before younger events may still be joined by older ones, and wait.
 * @returns the workspace as it is then; null when there was no event to measure.
 */
export async function measureNext(
  db: Database,
  { id, sizedTo }: Measured,
  before: string,
): Promise<Measured | null> {
  const [measured] = await commit(
    db,
    rows<Measured>(sql`
    UPDATE ${workspaces} SET sized_to = new.last, sized_bytes = sized_bytes + new.bytes
    FROM (SELECT max(id) AS last, sum(bytes) AS bytes FROM (
      SELECT e.id AS id, ${EVENT_BYTES} AS bytes FROM ${events} AS e
      WHERE e.workspace_id = ${id} AND e.id > ${sizedTo} AND e.id < ${before}
      ORDER BY e.id LIMIT ${CLEANUP_MAX})) AS new
    WHERE workspaces.id = ${id} AND sized_to = ${sizedTo} AND new.last IS NOT NULL
    RETURNING workspaces.id AS id, sized_to AS sizedTo, sized_bytes AS sizedBytes`),
  );
  return measured ?? null;
}

/** Adds to the size of their workspaces that of events which have been measured, or takes it off. */
export function resize(sign: 1 | -1, measured: SQL): Statements<number> {
  return write(sql`
    UPDATE ${workspaces} SET sized_bytes = sized_bytes + ${sign} * some.bytes
    FROM (SELECT e.workspace_id AS id, sum(${EVENT_BYTES}) AS bytes ${measured}
        AND e.id <= (SELECT w.sized_to FROM ${workspaces} AS w WHERE w.id = e.workspace_id)
      GROUP BY e.workspace_id) AS some
    WHERE workspaces.id = some.id`);
}
