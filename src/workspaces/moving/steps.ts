import { and, eq, inArray, isNotNull, isNull, sql } from "drizzle-orm";
import { qb } from "../../db/builder.ts";
import { type Executable, inOrder, readAs, type Statements } from "../../db/client.ts";
import { DIRECTORY } from "../../db/databases.ts";
import { changes, type MovePosition, type MoveState, moves, workspaces } from "../../db/schema.ts";
import { MOVED_FIELDS } from "../manifest.ts";
import { findMove, isMoveOf, type Move } from "../moves.ts";
import { insertEntry } from "../workspaces.ts";

/* What a move writes in the source, in the target and in the directory: see moves.ts. */

/** The fields of a workspace that move with it. */
type Workspace = Pick<typeof workspaces.$inferSelect, keyof typeof MOVED_FIELDS>;

/** The position of a move that has copied nothing yet. */
export const START: MovePosition = { kind: 0, after: null };

/** SQL condition: the workspace's row, if it belongs to this move and is in one of these states. */
export function isMoveIn({ workspaceId, moveId }: Move, states: MoveState[]) {
  const { state } = moves;
  return and(isMoveOf(workspaceId), eq(moves.moveId, moveId), inArray(state, states));
}

export function updateMove(
  workspaceId: string,
  fields: Partial<Omit<Move, "workspaceId" | "moveId">>,
): Executable {
  return qb.update(moves).set(fields).where(isMoveOf(workspaceId));
}

/** A workspace that lives in this database; undefined if it does not. */
export function findLiving(workspaceId: string): Statements<Workspace | undefined> {
  const found = qb
    .select(MOVED_FIELDS)
    .from(workspaces)
    .where(and(eq(workspaces.id, workspaceId), isNull(workspaces.database)));
  return readAs(found, ([row]) => row);
}

/**
 * Ends a move that its mover owns and that has not reached its switch. The target finds out by itself.
 * Safe to apply twice. Reads whether it has ended.
 */
export function cancelMove(move: Move, mover: string): Statements<boolean> {
  const { workspaceId, moveId } = move;
  const statements = inOrder([
    qb
      .delete(moves)
      .where(and(isMoveIn(move, ["copying", "draining", "closed"]), eq(moves.movedBy, mover))),
    qb
      .delete(changes)
      .where(
        sql`${changes.workspaceId} = ${workspaceId} AND NOT EXISTS (SELECT 1 FROM ${moves} WHERE ${isMoveOf(workspaceId)})`,
      ),
    findMove(workspaceId),
  ]);
  return readAs(statements, ([, , found]) => found?.moveId !== moveId);
}

/**
 * Takes over a move at the target: from now on, earlier movers can no longer write there. If nothing
 * has been copied yet, first inserts an entry for the workspace.
 *
 * @returns the target's move: another one, or undefined, if the workspace lives there, or what it left
 *   there is still being deleted.
 */
export function takeArrival(
  move: Move,
  from: string,
  workspace: Workspace,
  mover: string,
  now: number,
): Statements<Move | undefined> {
  const { workspaceId: id, moveId, position } = move;
  const livesElsewhere = and(eq(workspaces.id, id), isNotNull(workspaces.database));
  const isFirst = JSON.stringify(position) === JSON.stringify(START);
  const enter = inOrder([
    insertEntry(workspace, from),
    sql`INSERT INTO ${moves} (workspace_id, state, move_id, other, since)
      SELECT ${id}, 'arriving', ${moveId}, ${from}, ${now} FROM ${workspaces} WHERE ${livesElsewhere}
      ON CONFLICT (workspace_id) DO NOTHING`,
  ]);
  const statements = inOrder([
    isFirst ? enter : inOrder([]),
    qb
      .update(moves)
      .set({ movedBy: mover })
      .where(isMoveIn(move, ["arriving", "arrived"])),
    findMove(id),
  ]);
  return readAs(statements, ([, , found]) => found);
}

/**
 * Makes the workspace live in the target, with its final fields, as soon as the directory says so. It
 * cannot be written to before `openArrived`. Safe to apply twice.
 */
export function arrive({ id, ...fields }: Workspace, now: number): Statements<unknown> {
  return inOrder([
    qb
      .update(workspaces)
      .set({ ...fields, database: null })
      .where(and(eq(workspaces.id, id), isNotNull(workspaces.database))),
    updateMove(id, { state: "arrived", since: now }),
  ]);
}

/** Undoes `arrive`. Only before the directory says that the workspace lives in the target. */
export function retractArrival(id: string, from: string, now: number): Statements<unknown> {
  return inOrder([pointTo(id, null, from), updateMove(id, { state: "arriving", since: now })]);
}

/** Allows writes to a workspace that has arrived, once the directory and the source say so. */
export function openArrived(move: Move): Executable {
  return qb.delete(moves).where(isMoveIn(move, ["arrived"]));
}

/** Ends an arrival whose move was cancelled. Its copied rows, which nobody has read, can be deleted. */
export function voidArrival(move: Move): Statements<unknown> {
  const isArrived = sql`EXISTS (SELECT 1 FROM ${moves} WHERE ${isMoveIn(move, ["arrived"])})`;
  return inOrder([
    qb
      .update(workspaces)
      .set({ database: move.other })
      .where(and(eq(workspaces.id, move.workspaceId), isNull(workspaces.database), isArrived)),
    qb
      .update(moves)
      .set({ state: "gone", since: 0, movedBy: null })
      .where(isMoveIn(move, ["arriving", "arrived"])),
  ]);
}

/**
 * Takes over the directory's entry: from now on, earlier movers cannot change it.
 *
 * @returns where the workspace lives.
 */
export function takeDirectoryEntry(workspaceId: string, mover: string): Statements<string> {
  const statements = inOrder([
    qb.update(workspaces).set({ movedBy: mover }).where(eq(workspaces.id, workspaceId)),
    // If the directory's database is also the source or the target.
    updateMove(workspaceId, { movedBy: mover }),
    findEntry(workspaceId),
  ]);
  return readAs(statements, ([, , database]) => database);
}

export function findEntry(workspaceId: string): Statements<string> {
  const entry = qb
    .select({ database: workspaces.database })
    .from(workspaces)
    .where(eq(workspaces.id, workspaceId));
  return readAs(entry, ([row]) => row?.database ?? DIRECTORY);
}

/**
 * Makes the directory point to another database, unless another mover has taken over its entry.
 *
 * @returns whether it does.
 */
export function pointDirectory(
  workspaceId: string,
  from: string,
  to: string,
  mover: string,
): Statements<boolean> {
  const isIts = and(eq(workspaces.id, workspaceId), eq(workspaces.movedBy, mover));
  const statements = inOrder([
    qb
      .update(workspaces)
      .set({ database: to })
      .where(and(isIts, eq(workspaces.database, from))),
    qb.select({ database: workspaces.database }).from(workspaces).where(isIts),
  ]);
  return readAs(statements, ([, [entry]]) => entry?.database === to);
}

/**
 * Makes this database point to another one, where the workspace lives.
 *
 * @param before the database that it pointed to; null if the workspace lived here.
 */
export function pointTo(workspaceId: string, before: string | null, database: string): Executable {
  return qb
    .update(workspaces)
    .set({ database })
    .where(and(eq(workspaces.id, workspaceId), sql`${workspaces.database} IS ${before}`));
}
