import { and, count, desc, gte, isNull, lt, sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { DATABASE_MAX_BYTES, SIZES_KEPT_DAYS } from "../contract/limits.ts";
import { deleteFrom, insertFrom, select } from "../db/builder.ts";
import { commit, type Database, inOrder, rows, type Statements } from "../db/client.ts";
import { events, sizes, workspaces } from "../db/schema.ts";

const DAY_MS = 86_400_000;

/** How full a database is, and how fast it fills. */
export interface DatabaseFigures {
  sizeBytes: number;
  /** What D1 lets it hold. */
  maxBytes: number;
  /** Workspaces that live in it. */
  workspaces: number;
  /** Events of the last 24 hours that are kept. */
  eventsLastDay: number;
  /** What it has grown by in a day, on average over the days that are known; null before there are two. */
  bytesPerDay: number | null;
  /** Days until it is full, if it goes on growing so; null when that is not known, or it does not grow. */
  daysLeft: number | null;
}

/** What is known of a database that is away. */
export const NO_FIGURES = {
  sizeBytes: null,
  maxBytes: DATABASE_MAX_BYTES,
  workspaces: null,
  eventsLastDay: null,
  bytesPerDay: null,
  daysLeft: null,
};

/** Reads how full a database is. It reads a row for each workspace and for each event of the last day. */
export async function findFigures(db: Database, now: number): Promise<DatabaseFigures> {
  const [[living], [recent], kept, sizeBytes] = await commit(
    db,
    inOrder([
      select({ count: count() }).from(workspaces).where(isNull(workspaces.database)),
      select({ count: count() })
        .from(workspaces)
        // Cross: one stretch of the events for each workspace.
        .crossJoin(events)
        .where(
          and(
            isNull(workspaces.database),
            sql`${events.workspaceId} = ${workspaces.id}`,
            gte(events.id, eventIdAt(now - DAY_MS)),
          ),
        ),
      select({ day: sizes.day, bytes: sizes.bytes }).from(sizes).orderBy(desc(sizes.day)).limit(7),
      sizeOf,
    ]),
  );
  const [newest, oldest] = [kept.at(0), kept.at(-1)];
  const bytesPerDay =
    newest && oldest && newest.day > oldest.day
      ? Math.round((newest.bytes - oldest.bytes) / (newest.day - oldest.day))
      : null;
  const left = Math.max(0, DATABASE_MAX_BYTES - sizeBytes);
  return {
    sizeBytes,
    maxBytes: DATABASE_MAX_BYTES,
    workspaces: living?.count ?? 0,
    eventsLastDay: recent?.count ?? 0,
    bytesPerDay,
    daysLeft: bytesPerDay !== null && bytesPerDay > 0 ? Math.floor(left / bytesPerDay) : null,
  };
}

/** The size of a database in bytes. */
export function findSize(db: Database): Promise<number> {
  return commit(db, sizeOf);
}

/** D1 says it with every answer. */
const sizeOf: Statements<number> = {
  queries: [{ sql: "SELECT 1", params: [] }],
  read: ([result]) => result?.meta.size_after ?? 0,
};

/** Notes the size of a database, once a day. */
export async function insertSize(db: Database, now: number): Promise<void> {
  const day = Math.floor(now / DAY_MS);
  const [known, bytes] = await commit(
    db,
    inOrder([
      rows(select({ day: sizes.day }).from(sizes).where(sql`${sizes.day} = ${day}`)),
      sizeOf,
    ]),
  );
  if (known.length > 0) return;
  const isNew = sql`WHERE NOT EXISTS (SELECT 1 FROM ${sizes} WHERE ${sizes.day} = ${day})`;
  await commit(
    db,
    inOrder([
      insertFrom(sizes, { day, bytes }, isNew),
      deleteFrom(sizes).where(lt(sizes.day, day - SIZES_KEPT_DAYS)),
    ]),
  );
}
