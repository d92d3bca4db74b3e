import { type SQL, sql } from "drizzle-orm";
import { eventIdAt } from "../../contract/ids.ts";
import { DAY_MS } from "../../contract/time.ts";
import { CLEANUP_MAX, commit, type Database } from "../../db/client.ts";
import { deliveries, events, workspaces } from "../../db/schema.ts";
import { findPosition, updatePosition } from "../../db/sweep-positions.ts";
import { ownedTable } from "../table-registry.ts";
import { isWritable } from "../write-lock.ts";
import { deleteRows } from "./erase.ts";

/** The retention of settled events, which have no pending delivery. An event is deleted if either limit is exceeded. */
export interface Retention {
  /** Maximum age of an event, in milliseconds. */
  keptMs: number;
  /** Maximum events of a workspace; the newest ones are stored. */
  eventsMax: number;
}

/**
 * Parses the deployment's retention variables.
 *
 * @throws Error that names the variable that is not a positive number.
 */
export function parseRetention(env: Env): Retention {
  const positive = (name: "EVENTS_KEPT_DAYS" | "EVENTS_KEPT_MAX") => {
    const value = Number(env[name]);
    if (!(value > 0)) throw new Error(`${name} is not a positive number`);
    return value;
  };
  return {
    keptMs: positive("EVENTS_KEPT_DAYS") * DAY_MS,
    eventsMax: Math.ceil(positive("EVENTS_KEPT_MAX")),
  };
}

/** Maximum events of a workspace that one query examines, including those that are not settled. */
const EVENTS_EXAMINED_MAX = 3_000;
/** Number of workspaces whose events one query counts. */
const COUNTED_AT_ONCE = 5;

/**
 * Deletes settled events that are too old, and then those beyond the maximum of their workspace, until none remain or
 * `hasTime` returns false. The next call continues.
 *
 * @returns how many events were deleted.
 */
export async function deleteExpired(
  db: Database,
  { keptMs, eventsMax }: Retention,
  now: number,
  hasTime: () => boolean,
): Promise<number> {
  const old = await deleteOld(db, eventIdAt(now - keptMs), hasTime);
  return old + (await deleteBeyond(db, eventsMax, now, hasTime));
}

/**
 * Deletes the events before `before` of all workspaces in turn. A workspace that has more than one query finds gets its
 * next turn after the others.
 */
async function deleteOld(db: Database, before: string, hasTime: () => boolean): Promise<number> {
  const { id } = workspaces;
  let deleted = 0;
  let position = await findPosition(db, "retention");
  while (hasTime()) {
    const found = await findSettled(
      db,
      sql`(SELECT ${id} AS id, ${before} AS before FROM ${workspaces} WHERE ${id} > ${position})`,
    );
    if (found.length === 0 && position === "") break;
    position = found.length === CLEANUP_MAX ? (found.at(-1)?.workspaceId ?? "") : "";
    // The position is stored first, so that the next run continues after events that cannot be deleted.
    await updatePosition(db, "retention", position);
    deleted += await deleteSettled(db, found);
  }
  return deleted;
}

/**
 * Deletes the events of each workspace beyond its newest `max`. Counting reads all events, so it starts once an hour,
 * and continues in the following runs.
 */
async function deleteBeyond(
  db: Database,
  max: number,
  now: number,
  hasTime: () => boolean,
): Promise<number> {
  let position = await findPosition(db, "newest");
  if (position === "" && new Date(now).getUTCMinutes() > 0) return 0;
  let deleted = 0;
  do {
    if (!hasTime()) break;
    const counted = await listFull(db, max, position);
    const full = JSON.stringify(counted.filter(({ before }) => before !== null));
    const bounds = sql`(SELECT value->>'id' AS id, value->>'before' AS before FROM json_each(${full}))`;
    let isLeft = full !== "[]";
    while (isLeft && hasTime()) {
      const found = await findSettled(db, bounds);
      deleted += await deleteSettled(db, found);
      isLeft = found.length === CLEANUP_MAX;
    }
    if (isLeft) break;
    position = counted.length === COUNTED_AT_ONCE ? (counted.at(-1)?.id ?? "") : "";
  } while (position !== "");
  await updatePosition(db, "newest", position);
  return deleted;
}

/** Reads the next workspaces, each with the oldest event within its maximum; null if it does not exceed it. */
function listFull(db: Database, max: number, after: string) {
  const { id } = workspaces;
  return db.all<{ id: string; before: string | null }>(sql`
    SELECT ${id} AS id, (SELECT ${events.id} FROM ${events} WHERE ${events.workspaceId} = ${id}
      ORDER BY ${events.id} DESC LIMIT 1 OFFSET ${max - 1}) AS before
    FROM ${workspaces} WHERE ${id} > ${after} ORDER BY ${id} LIMIT ${COUNTED_AT_ONCE}`);
}

type FoundEvent = Pick<typeof events.$inferSelect, "id" | "workspaceId">;

/** SQL condition: the event has no pending delivery. */
const IS_SETTLED = sql`NOT EXISTS (SELECT 1 FROM json_each(${events.owed}) AS o JOIN ${deliveries}
  ON ${deliveries.subscriptionId} = o.value AND ${deliveries.eventId} = ${events.id}
  WHERE ${deliveries.state} = 'pending')`;

/**
 * Finds up to `CLEANUP_MAX` settled events of the workspaces in `bounds`, in the order of the workspaces' ids.
 *
 * @param bounds subquery of the `id` of each workspace, and the id `before` which its events are wanted.
 */
function findSettled(db: Database, bounds: SQL): Promise<FoundEvent[]> {
  // CROSS JOIN makes SQLite read one workspace after the other.
  return db.all(sql`
    SELECT ${events.workspaceId} AS workspaceId, ${events.id} AS id
    FROM ${bounds} AS bound CROSS JOIN ${events} ON ${events.workspaceId} = bound.id AND ${events.id} IN (
      SELECT own.id FROM ${events} AS own WHERE own.workspace_id = bound.id AND own.id < bound.before
      ORDER BY own.id LIMIT ${EVENTS_EXAMINED_MAX})
    WHERE ${isWritable(events.workspaceId)} AND ${IS_SETTLED}
    ORDER BY bound.id LIMIT ${CLEANUP_MAX}`);
}

/** Deletes events that are still settled, with their deliveries. @returns how many it deleted. */
async function deleteSettled(db: Database, found: FoundEvent[]): Promise<number> {
  if (found.length === 0) return 0;
  const isFound = sql`(${events.workspaceId}, ${events.id}) IN (
    SELECT value->>'workspaceId', value->>'id' FROM json_each(${JSON.stringify(found)}))`;
  return commit(db, deleteRows(ownedTable(events), sql`${isFound} AND ${IS_SETTLED}`));
}
