import { and, eq, isNotNull, isNull, lte, not, sql } from "drizzle-orm";
import { REMOVED_AUTOMATIONS_KEPT_DAYS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { inJson, qb } from "../db/builder.ts";
import { commit, counted, type Database, type Part, query, type Statements } from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import { isWritable } from "../db/states.ts";

const IS_REMOVED = isNotNull(automations.removedAt);
const HAS_RUNS = sql`EXISTS (SELECT 1 FROM ${runs} WHERE ${runs.automationId} = ${automations.id})`;

/**
 * Removes automations of the workspace. They are gone from the API from then on, and get no run any more.
 * `deleteRemovedRuns` deletes those that they have. Reads how many were removed.
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

/**
 * Deletes the runs of the removed automations among these, in pieces of one transaction each.
 *
 * @param hasMore whether there is time for another piece.
 * @returns whether none is left.
 */
export async function deleteRemovedRuns(
  db: Database,
  workspaceId: string,
  ids: string[],
  hasMore: () => boolean,
): Promise<boolean> {
  const isRemoved = and(
    inJson(automations.id, ids),
    eq(automations.workspaceId, workspaceId),
    IS_REMOVED,
  );
  const next = qb
    .select({ id: automations.id })
    .from(automations)
    .where(and(isRemoved, HAS_RUNS))
    .limit(1);
  let [found] = await query(db, next);
  while (found) {
    if (!hasMore()) return false;
    // Another call may have recorded the automation again since it was found.
    const piece = sql`SELECT ${runs.id} FROM ${automations} JOIN ${runs} ON ${runs.automationId} = ${automations.id}
      WHERE ${automations.id} = ${found.id} AND ${IS_REMOVED} LIMIT ${CLEANUP_MAX}`;
    const { following } = await commit(db, {
      deleted: sql`DELETE FROM ${runs} WHERE ${runs.id} IN (${piece})`,
      following: next,
    });
    [found] = following;
  }
  return true;
}

/** Deletes removed automations once no report from before their removal can come any more. */
export function deleteOldAutomations(now: number): Part {
  const isOld = lte(automations.removedAt, now - REMOVED_AUTOMATIONS_KEPT_DAYS * DAY_MS);
  return sql`DELETE FROM ${automations} WHERE ${automations.id} IN (
    SELECT ${automations.id} FROM ${automations} INDEXED BY automations_removed
    WHERE ${IS_REMOVED} AND ${isOld} AND ${not(HAS_RUNS)} AND ${isWritable(automations.workspaceId)} LIMIT ${CLEANUP_MAX})`;
}
