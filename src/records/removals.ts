import { and, type Column, eq, isNotNull, isNull, type SQL, sql } from "drizzle-orm";
import { inJson, qb } from "../db/builder.ts";
import { commit, counted, type Database, query, type Statements } from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import { isWritable } from "../workspaces/write-lock.ts";

/** Maximum runs of removed automations that one transaction deletes. */
const REMOVED_RUNS_AT_ONCE = 5_000;

/** A table expression: automations, read through the index of removed ones. */
const REMOVED = sql`${automations} INDEXED BY automations_removed`;
const IS_REMOVED = isNotNull(automations.removedAt);

/**
 * Removes automations of the workspace. They and their runs disappear from the API immediately;
 * `cleanUpAutomations` deletes the rows. Reads how many were removed.
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
    .where(
      and(
        inJson(automations.id, ids),
        IS_REMOVED,
        sql`EXISTS (SELECT 1 FROM ${runs} WHERE ${runs.automationId} = ${automations.id})`,
      ),
    )
    .limit(1);
  let [found] = await query(db, next);
  while (found) {
    if (!hasMore()) return false;
    const { following } = await commit(db, { ...deletePiece(found.id), following: next });
    [found] = following;
  }
  return true;
}

/**
 * Deletes removed automations with their runs, in chunks of one transaction each. The newest runs come first, so
 * that pages soon have fewer hidden rows to skip; the automation comes last. Stops when all are deleted, or when
 * `hasMore` returns false. The next call continues.
 */
export async function cleanUpAutomations(db: Database, hasMore: () => boolean): Promise<void> {
  const next = qb
    .select({ id: automations.id })
    .from(automations)
    .where(and(IS_REMOVED, isWritable(automations.workspaceId)))
    .limit(1);
  let [found] = await query(db, next);
  while (found && hasMore()) {
    const { following } = await commit(db, { ...deletePiece(found.id), following: next });
    [found] = following;
  }
}

/** Deletes one chunk. Affects nothing if the automation was recorded again in the meantime. */
function deletePiece(id: string) {
  const isOfIt = eq(runs.automationId, id);
  return {
    runs: sql`DELETE FROM ${runs} WHERE ${runs.id} IN (SELECT ${runs.id} FROM ${runs}
      WHERE ${isOfIt} AND ${isOfRemoved(runs.automationId)}
      ORDER BY ${runs.occurredAt} DESC LIMIT ${REMOVED_RUNS_AT_ONCE})`,
    automation: qb
      .delete(automations)
      .where(
        and(
          eq(automations.id, id),
          IS_REMOVED,
          sql`NOT EXISTS (SELECT 1 FROM ${runs} WHERE ${isOfIt})`,
        ),
      ),
  };
}
