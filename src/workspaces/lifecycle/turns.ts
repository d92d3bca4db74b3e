import { and, gt, type SQL } from "drizzle-orm";
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
 * all the time gets its next turn after the others.
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
  let position = await findPosition(db, part);
  while (mayGoOn()) {
    const found = await db
      .select()
      .from(workspaces)
      .where(and(gt(id, position), isWritable(id), needsIt))
      .orderBy(id)
      .limit(WORKSPACES_AT_ONCE);
    for (const workspace of found) {
      if (!mayGoOn()) break;
      position = workspace.id;
      await act(workspace);
    }
    if (found.length < WORKSPACES_AT_ONCE && mayGoOn()) {
      position = "";
      break;
    }
  }
  await updatePosition(db, part, position);
}
