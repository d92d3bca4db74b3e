import { type SQL, sql } from "drizzle-orm";
import { REMOVED_RUNS_AT_ONCE, REMOVED_RUNS_PIECES } from "../contract/limits.ts";
import type { Moment } from "../contract/platform.ts";
import {
  commit,
  type Database,
  inOrder,
  readAs,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { automations, removals, runs } from "../db/schema.ts";

/**
 * Removes automations of the workspace: they and their runs are gone from the API at once, and are
 * deleted by `cleanUpAutomations`. Recorded again, an automation has a new generation of runs. One
 * that is known only since after the removal was sent is not meant. Reads how many were there.
 */
export function removeAutomations(
  workspaceId: string,
  ids: string[],
  { sentAt, now }: Moment,
): Statements<number> {
  const there = sql`workspace_id = ${workspaceId} AND removed_at IS NULL
    AND created_at <= ${sentAt ?? Number.MAX_SAFE_INTEGER}
    AND id IN (SELECT value FROM json_each(${JSON.stringify(ids)}))`;
  const statements = inOrder([
    write(sql`INSERT INTO ${removals} (automation_id, generation)
      SELECT id, generation FROM ${automations} WHERE ${there}`),
    write(
      sql`UPDATE ${automations} SET removed_at = ${now}, revision = revision + 1 WHERE ${there}`,
    ),
  ]);
  return readAs(statements, ([, removed]) => removed);
}

/** True in SQL of a row `run` of a generation that was removed; there are few of those, mostly none. */
export function isRemoved(run: "runs" | "known"): SQL {
  const table = sql.raw(run);
  return sql`EXISTS (SELECT 1 FROM removals AS gone
    WHERE gone.automation_id = ${table}.automation_id AND gone.generation = ${table}.generation)`;
}

/**
 * Deletes what was removed, in pieces, each a transaction: its runs, the newest first, so that pages
 * are soon short of rows to skip, and then the automation. Ends when all is done, at the deadline, or
 * after as many pieces as one invocation may send.
 *
 * @param deadline Unix milliseconds.
 */
export async function cleanUpAutomations(db: Database, deadline: number): Promise<void> {
  const next = rows<typeof removals.$inferSelect>(
    sql`SELECT automation_id AS automationId, generation FROM ${removals} LIMIT 1`,
  );
  let [found] = await commit(db, next);
  for (let piece = 0; found && piece < REMOVED_RUNS_PIECES && Date.now() < deadline; piece++) {
    const [, [following]] = await commit(db, inOrder([deletePiece(found), next]));
    found = following;
  }
}

function deletePiece({ automationId, generation }: typeof removals.$inferSelect) {
  const ofGeneration = sql`automation_id = ${automationId} AND generation = ${generation}`;
  return inOrder([
    write(sql`DELETE FROM ${runs} WHERE rowid IN (SELECT rowid FROM ${runs} WHERE ${ofGeneration}
      ORDER BY occurred_at DESC LIMIT ${REMOVED_RUNS_AT_ONCE})`),
    write(sql`DELETE FROM ${removals} WHERE ${ofGeneration}
      AND NOT EXISTS (SELECT 1 FROM ${runs} WHERE ${ofGeneration})`),
    write(sql`DELETE FROM ${automations} WHERE id = ${automationId} AND removed_at IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM ${removals} WHERE automation_id = ${automationId})`),
  ]);
}
