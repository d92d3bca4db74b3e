import { type SQL, sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { commit, type Database } from "../db/client.ts";
import { deliveries, events, workspaces } from "../db/schema.ts";
import { isWritable } from "../db/states.ts";
import { findPosition, updatePosition } from "../db/sweep-positions.ts";
import { ownedTable } from "../workspaces/table-registry.ts";
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

/** Number of workspaces whose events one query counts. */
const COUNTED_AT_ONCE = 5;

/**
 * Deletes settled events that are too old, and then those beyond the maximum of their workspace, until none remain or
 * `hasTime` returns false. The next call continues.
 *
 * @param turnMs maximum time between two calls for this database.
 * @returns how many events were deleted.
 */
export async function deleteExpired(
  db: Database,
  { keptMs, eventsMax }: Retention,
  now: number,
  hasTime: () => boolean,
  turnMs = MINUTE_MS,
): Promise<number> {
  const old = await deleteOld(db, eventIdAt(now - keptMs), hasTime);
  return old + (await deleteBeyond(db, eventsMax, now, hasTime, turnMs));
}

/**
 * Deletes the events before `before` of all workspaces, in passes. A pass deletes at most `CLEANUP_MAX` events of a
 * workspace, so that one with many more holds up no other. A pass that has found none to delete is the last.
 */
async function deleteOld(db: Database, before: string, hasTime: () => boolean): Promise<number> {
  const { id } = workspaces;
  let place = await findPlace(db, "retention");
  let deleted = 0;
  // A pass that the last run began may have found some.
  let hasFound = place !== START;
  while (hasTime()) {
    const { settled, last } = await examineEvents(
      db,
      sql`(SELECT ${id} AS id, ${before} AS before FROM ${workspaces} WHERE ${isLeft(place)})`,
      place,
    );
    hasFound ||= settled.length > 0;
    const isTurnOver = last?.workspaceId === settled.at(-1)?.workspaceId;
    place = last === null ? START : isTurnOver ? endOf(last.workspaceId) : last;
    // The place is stored first, so that the next run continues after events that cannot be deleted.
    await updatePlace(db, "retention", place);
    deleted += await deleteSettled(db, settled);
    if (last === null) {
      if (!hasFound) break;
      hasFound = false;
    }
  }
  return deleted;
}

/**
 * Deletes the events of each workspace beyond its newest `max`. Counting reads all events, so it only starts in the first
 * `turnMs` of an hour, in which each database has a turn, and continues in the following runs.
 */
async function deleteBeyond(
  db: Database,
  max: number,
  now: number,
  hasTime: () => boolean,
  turnMs: number,
): Promise<number> {
  let place = await findPlace(db, "newest");
  if (place === START && now % HOUR_MS >= turnMs) return 0;
  let deleted = 0;
  while (hasTime()) {
    const counted = await countEvents(db, max, place);
    for (const { id, before } of counted) {
      const bounds = sql`(SELECT ${id} AS id, ${before} AS before)`;
      let hasMore = before !== null;
      while (hasMore && hasTime()) {
        const { settled, last } = await examineEvents(db, bounds, place);
        deleted += await deleteSettled(db, settled);
        place = last ?? endOf(id);
        hasMore = last !== null;
      }
      if (hasMore) {
        await updatePlace(db, "newest", place);
        return deleted;
      }
      place = endOf(id);
    }
    if (counted.length < COUNTED_AT_ONCE) {
      place = START;
      break;
    }
  }
  await updatePlace(db, "newest", place);
  return deleted;
}

/**
 * Reads the next workspaces with events behind a place, each with the oldest event within its maximum; null if it does
 * not exceed it.
 */
function countEvents(db: Database, max: number, after: Place) {
  const { id } = workspaces;
  return db.all<{ id: string; before: string | null }>(sql`
    SELECT ${id} AS id, (SELECT ${events.id} FROM ${events} WHERE ${events.workspaceId} = ${id}
      ORDER BY ${events.id} DESC LIMIT 1 OFFSET ${max - 1}) AS before
    FROM ${workspaces} WHERE ${isLeft(after)} ORDER BY ${id} LIMIT ${COUNTED_AT_ONCE}`);
}

/** A place among all events, which are sorted by workspace and id: behind this event. */
interface Place {
  workspaceId: string;
  /** Null behind the last event of the workspace. */
  eventId: string | null;
}

const START: Place = { workspaceId: "", eventId: null };

function endOf(workspaceId: string): Place {
  return { workspaceId, eventId: null };
}

/** SQL condition: the workspace may have events behind the place. */
function isLeft({ workspaceId, eventId }: Place): SQL {
  const { id } = workspaces;
  return eventId === null ? sql`${id} > ${workspaceId}` : sql`${id} >= ${workspaceId}`;
}

async function findPlace(db: Database, part: string): Promise<Place> {
  const position = await findPosition(db, part);
  return position === "" ? START : JSON.parse(position);
}

function updatePlace(db: Database, part: string, place: Place): Promise<void> {
  return updatePosition(db, part, place === START ? "" : JSON.stringify(place));
}

type FoundEvent = Pick<typeof events.$inferSelect, "id" | "workspaceId">;

/** SQL condition: the event has no pending delivery. */
const IS_SETTLED = sql`NOT EXISTS (SELECT 1 FROM json_each(${events.owed}) AS o JOIN ${deliveries}
  ON ${deliveries.subscriptionId} = o.value AND ${deliveries.eventId} = ${events.id}
  WHERE ${deliveries.state} = 'pending')`;

/**
 * Examines the next `CLEANUP_MAX` events behind a place, of the workspaces in `bounds`.
 *
 * @param bounds subquery of the `id` of each workspace, and the id `before` which its events are examined.
 * @returns those that are settled, and the place of the last one examined; null if no more follow.
 */
async function examineEvents(
  db: Database,
  bounds: SQL,
  after: Place,
): Promise<{ settled: FoundEvent[]; last: Place | null }> {
  // CROSS JOIN makes SQLite read one workspace after the other, and the subquery makes it stop at the limit.
  const examined = await db.all<FoundEvent & { isSettled: number }>(sql`
    SELECT ${events.workspaceId} AS workspaceId, ${events.id} AS id, ${IS_SETTLED} AS isSettled
    FROM ${bounds} AS bound CROSS JOIN ${events} ON ${events.workspaceId} = bound.id AND ${events.id} IN (
      SELECT own.id FROM ${events} AS own
      WHERE own.workspace_id = bound.id AND own.id < bound.before
        AND own.id > iif(bound.id = ${after.workspaceId}, ${after.eventId}, '')
      ORDER BY own.id LIMIT ${CLEANUP_MAX})
    WHERE ${isWritable(events.workspaceId)}
    ORDER BY bound.id, ${events.id} LIMIT ${CLEANUP_MAX}`);
  const settled = examined.filter(({ isSettled }) => isSettled === 1);
  const last = examined.length === CLEANUP_MAX ? examined.at(-1) : undefined;
  return { settled, last: last ? { workspaceId: last.workspaceId, eventId: last.id } : null };
}

/** Deletes events that are still settled, with their deliveries. @returns how many it deleted. */
async function deleteSettled(db: Database, found: FoundEvent[]): Promise<number> {
  if (found.length === 0) return 0;
  const isFound = sql`(${events.workspaceId}, ${events.id}) IN (
    SELECT value->>'workspaceId', value->>'id' FROM json_each(${JSON.stringify(found)}))`;
  return commit(db, deleteRows(ownedTable(events), sql`${isFound} AND ${IS_SETTLED}`));
}
