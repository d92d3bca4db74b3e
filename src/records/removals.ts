import { and, type Column, eq, isNotNull, isNull, lte, not, type SQL, sql } from "drizzle-orm";
import { REMOVED_AUTOMATIONS_KEPT_DAYS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { inJson, qb } from "../db/builder.ts";
import { commit, counted, type Database, query, type Statements } from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import { isWritable } from "../workspaces/write-lock.ts";

/** Maximum runs of removed automations that one transaction deletes. */
const REMOVED_RUNS_AT_ONCE = 5_000;

/** A table expression: automations, read through the index of removed ones. */
const REMOVED = sql`${automations} INDEXED BY automations_removed`;
const IS_REMOVED = isNotNull(automations.removedAt);
const HAS_RUNS = sql`EXISTS (SELECT 1 FROM ${runs} WHERE ${runs.automationId} = ${automations.id})`;

/**
 * Removes automations of the workspace. They and their runs disappear from the API immediately;
 * `cleanUpAutomations` deletes them. Reads how many were removed.
 */
export function markAutomationsRemoved(
  workspaceId: string,
  ids: string[],
  now: number,
): Statements<number> {
  const { id, removedAt } = automations;
  const isPresent = and(
    inJson(id, ids),
    eq(automations.workspaceId, workspaceId),
    isNull(removedAt),
  );
  return counted(qb.update(automations).set({ removedAt: now }).where(isPresent));
}

/** SQL condition: the automation of a run is removed. */
export function isOfRemoved(automationId: Column): SQL {
  return sql`EXISTS (SELECT 1 FROM ${REMOVED} WHERE ${automations.id} = ${automationId} AND ${IS_REMOVED})`;
}

/**
 * Deletes the runs of the removed automations among these, in chunks of one transaction each, before the automations
 * are recorded again. There are rarely any, because `cleanUpAutomations` deletes them within minutes of the removal.
 *
 * @param hasMore whether there is time for another chunk.
 * @returns whether all are deleted.
 */
export async function deleteRemovedRuns(
  db: Database,
  ids: string[],
  hasMore: () => boolean,
): Promise<boolean> {
  const next = qb
    .select({ id: automations.id })
    .from(automations)
    .where(and(inJson(automations.id, ids), IS_REMOVED, HAS_RUNS))
    .limit(1);
  let [found] = await query(db, next);
  while (found) {
    if (!hasMore()) return false;
    const { following } = await commit(db, { runs: deleteRuns(found.id), following: next });
    [found] = following;
  }
  return true;
}

/**
 * Deletes the runs of removed automations, and the automations `REMOVED_AUTOMATIONS_KEPT_DAYS` after their removal, in
 * chunks of one transaction each. The newest runs come first, so that pages soon have fewer hidden rows to skip. Stops
 * when all are deleted, or when `hasMore` returns false. The next call continues.
 */
export async function cleanUpAutomations(
  db: Database,
  now: number,
  hasMore: () => boolean,
): Promise<void> {
  const isExpired = lte(automations.removedAt, now - REMOVED_AUTOMATIONS_KEPT_DAYS * DAY_MS);
  // A chunk continues where the previous one stopped, so that a call examines each removed automation once.
  const nextFrom = (id: string) =>
    qb.all<{ id: string }>(sql`SELECT ${automations.id} FROM ${REMOVED}
      WHERE ${IS_REMOVED} AND ${automations.id} >= ${id} AND (${isExpired} OR ${HAS_RUNS})
        AND ${isWritable(automations.workspaceId)}
      ORDER BY ${automations.id} LIMIT 1`);
  let [found] = await query(db, nextFrom(""));
  while (found && hasMore()) {
    const { id } = found;
    const { following } = await commit(db, {
      runs: deleteRuns(id),
      automation: qb
        .delete(automations)
        .where(and(eq(automations.id, id), IS_REMOVED, isExpired, not(HAS_RUNS))),
      following: nextFrom(id),
    });
    [found] = following;
  }
}

/** Deletes one chunk of the runs of a removed automation. Affects nothing if it was recorded again in the meantime. */
function deleteRuns(automationId: string): SQL {
  return sql`DELETE FROM ${runs} WHERE ${runs.id} IN (SELECT ${runs.id} FROM ${runs}
    WHERE ${runs.automationId} = ${automationId} AND ${isOfRemoved(runs.automationId)}
    ORDER BY ${runs.occurredAt} DESC LIMIT ${REMOVED_RUNS_AT_ONCE})`;
}
