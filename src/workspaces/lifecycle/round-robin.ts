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
 * `hasTime` returns false; the next call continues. The position moves on first: a workspace that uses up
 * all the time, or fails, gets its next turn after the others.
 *
 * @param needsIt SQL condition: the workspace has something to do.
 */
export async function roundRobin(
  db: Database,
  part: string,
  needsIt: SQL | undefined,
  act: (workspace: Workspace) => Promise<void>,
  hasTime: () => boolean,
): Promise<void> {
  let position = await findPosition(db, part);
  try {
    for await (const workspace of roundFrom(db, position, needsIt)) {
      if (!hasTime()) return;
      position = workspace.id;
      await act(workspace);
    }
    position = "";
  } finally {
    await updatePosition(db, part, position);
  }
}

/** The workspaces that need it: those after `start`, and then from the beginning to it. */
async function* roundFrom(db: Database, start: string, needsIt: SQL | undefined) {
  yield* listAfter(db, start, needsIt);
  yield* listAfter(db, "", and(lte(workspaces.id, start), needsIt));
}

async function* listAfter(db: Database, start: string, condition: SQL | undefined) {
  const { id } = workspaces;
  for (let after: string | undefined = start; after !== undefined; ) {
    const found: Workspace[] = await db
      .select()
      .from(workspaces)
      .where(and(gt(id, after), isWritable(id), condition))
      .orderBy(id)
      .limit(WORKSPACES_AT_ONCE);
    yield* found;
    after = found[WORKSPACES_AT_ONCE - 1]?.id;
  }
}
