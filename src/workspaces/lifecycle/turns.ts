import { and, gt, lte, type SQL } from "drizzle-orm";
import type { Database } from "../../db/client.ts";
import { workspaces } from "../../db/schema.ts";
import { findPosition, updatePosition } from "../../db/sweep-positions.ts";
import { isWritable } from "../moves.ts";

type Workspace = typeof workspaces.$inferSelect;

/** Workspaces found in one query. */
const WORKSPACES_AT_ONCE = 50;

/**
 * Acts on workspaces in turn, from where this part of the sweep stopped, until there are no more or
 * `mayGoOn` returns false; the next call continues. The position moves on first: a workspace that uses up
 * all the time, or fails, gets its next turn after the others.
 *
 * @param needsIt SQL condition: the workspace has something to do.
 */
export async function takeTurns(
  db: Database,
  part: string,
  needsIt: SQL | undefined,
  act: (workspace: Workspace) => Promise<void>,
  mayGoOn: () => boolean,
): Promise<void> {
  const { id } = workspaces;
  const start = await findPosition(db, part);
  let position = start;
  try {
    // From there to the end, and then from the beginning to there.
    for (const isInRound of [gt(id, start), lte(id, start)]) {
      for (let isMore = true; isMore; ) {
        const found = await db
          .select()
          .from(workspaces)
          .where(and(gt(id, position), isInRound, isWritable(id), needsIt))
          .orderBy(id)
          .limit(WORKSPACES_AT_ONCE);
        for (const workspace of found) {
          if (!mayGoOn()) return;
          position = workspace.id;
          await act(workspace);
        }
        isMore = found.length === WORKSPACES_AT_ONCE;
      }
      position = "";
    }
  } finally {
    await updatePosition(db, part, position);
  }
}
