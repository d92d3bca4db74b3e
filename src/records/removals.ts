import { and, type Column, eq, getTableColumns, type SQL, sql } from "drizzle-orm";
import { insertFrom, qb } from "../db/builder.ts";
import {
  commit,
  counted,
  type Database,
  query,
  readAs,
  type Statements,
  transaction,
} from "../db/client.ts";
import { automations, removals, runs } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";

/** Maximum runs of removed automations that one transaction deletes. */
const REMOVED_RUNS_AT_ONCE = 5_000;

type Removal = typeof removals.$inferSelect;

/**
 * Removes automations of the workspace. They and their runs disappear from the API immediately;
 * `cleanUpAutomations` deletes the rows. An automation that is recorded again has a new generation
 * of runs. Reads how many were removed.
 */
export function removeAutomations(
  workspaceId: string,
  ids: string[],
  now: number,
): Statements<number> {
  const isThere = sql`${automations.workspaceId} = ${workspaceId} AND ${automations.removedAt} IS NULL
    AND ${automations.id} IN (SELECT value FROM json_each(${JSON.stringify(ids)}))`;
  const statements = transaction({
    noted: insertFrom(
      removals,
      { automationId: automations.id, generation: automations.generation },
      sql`FROM ${automations} WHERE ${isThere}`,
    ),
    removed: counted(
      qb
        .update(automations)
        .set({ removedAt: now, revision: sql`${automations.revision} + 1` })
        .where(isThere),
    ),
  });
  return readAs(statements, ({ removed }) => removed);
}

/** SQL condition: the run belongs to a removed generation. There are few of those, mostly none. */
export function isRemoved({ automationId, generation }: Record<keyof Removal, Column>): SQL {
  return sql`EXISTS (SELECT 1 FROM ${removals}
    WHERE ${removals.automationId} = ${automationId} AND ${removals.generation} = ${generation})`;
}

/**
 * Deletes what was removed, in chunks of one transaction each: first the runs, newest first, so that
 * pages soon have fewer rows to skip, then the automation. Stops when all is done, or `hasMore` returns
 * false; the next call continues.
 */
export async function cleanUpAutomations(db: Database, hasMore: () => boolean): Promise<void> {
  const next = qb
    .select(getTableColumns(removals))
    .from(removals)
    .innerJoin(automations, eq(automations.id, removals.automationId))
    .where(isWritable(automations.workspaceId))
    .limit(1);
  let [found] = await query(db, next);
  while (found && hasMore()) {
    const { following } = await commit(db, { deleted: deletePiece(found), following: next });
    [found] = following;
  }
}

function deletePiece({ automationId, generation }: Removal) {
  const isOfGeneration = and(eq(runs.automationId, automationId), eq(runs.generation, generation));
  return transaction({
    // Raw SQL: Drizzle does not support rowid.
    runs: sql`DELETE FROM ${runs} WHERE rowid IN (SELECT rowid FROM ${runs} WHERE ${isOfGeneration}
      ORDER BY ${runs.occurredAt} DESC LIMIT ${REMOVED_RUNS_AT_ONCE})`,
    removal: qb.delete(removals).where(
      sql`${removals.automationId} = ${automationId} AND ${removals.generation} = ${generation}
          AND NOT EXISTS (SELECT 1 FROM ${runs} WHERE ${isOfGeneration})`,
    ),
    automation: qb.delete(automations).where(
      sql`${automations.id} = ${automationId} AND ${automations.removedAt} IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM ${removals} WHERE ${removals.automationId} = ${automationId})`,
    ),
  });
}
