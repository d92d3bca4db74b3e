import { and, type Column, eq, inArray, isNull, lte, or, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Executable, inOrder, readAs, type Statements } from "../db/client.ts";
import { changes, type MovePosition, type MoveState, moves, workspaces } from "../db/schema.ts";
import { MOVED_FIELDS } from "./manifest.ts";

/** How long a mover owns a move, unless it renews that. */
const MOVER_MS = 15_000;

/*
 * Moving a workspace from one database, the source, to another, the target (moving/arrivals.ts). `MoveState`
 * explains the states. Only the mover that owns the move changes them. Each of its writes checks, in the
 * same transaction, that it still owns the move: it may have hung, and another one taken over. Once a move
 * is over, its row is gone, and only the entry in `workspaces` says that a workspace lives elsewhere.
 */

/** A move, as stored in the source. */
export type Move = typeof moves.$inferSelect;

/** The fields of a workspace that move with it. */
export type Workspace = Pick<typeof workspaces.$inferSelect, keyof typeof MOVED_FIELDS>;

const isOf = (workspaceId: string) => eq(moves.workspaceId, workspaceId);

/** SQL condition: the workspace's row, if it belongs to this move and is in one of these states. */
export function isMoveIn({ workspaceId, moveId }: Move, states: MoveState[]) {
  return and(isOf(workspaceId), eq(moves.moveId, moveId), inArray(moves.state, states));
}

/**
 * Fails its transaction unless the mover owns the move and the move is in one of these states;
 * `isOvertaken` recognises the error.
 */
export function expectMover(workspaceId: string, mover: string, states: MoveState[]): Executable {
  const isIts = and(isOf(workspaceId), eq(moves.movedBy, mover), inArray(moves.state, states));
  return sql`INSERT INTO ${moves} (workspace_id, move_id, state, other, since)
      SELECT NULL, '', '', '', 0 WHERE NOT EXISTS (SELECT 1 FROM ${moves} WHERE ${isIts})`;
}

/** Whether a transaction failed because its mover no longer owns the move. */
export function isOvertaken(error: unknown): boolean {
  return (
    error instanceof Error &&
    error.message.includes("NOT NULL constraint failed: moves.workspace_id")
  );
}

/** The move of a workspace in which this database takes part; undefined if there is none. */
export function findMove(workspaceId: string): Statements<Move | undefined> {
  const found = qb.select().from(moves).where(isOf(workspaceId));
  return readAs(found, ([move]) => move);
}

/**
 * The moves that no mover owns and that are not waiting to be tried again: of workspaces that are leaving
 * this database, have left data behind, or are arriving. Those whose writes are waiting come first, then
 * those whose deliveries are.
 */
export function listMoves(limit: number, now: number) {
  const states: MoveState[] = ["closed", "draining", "gone", "copying", "arriving", "arrived"];
  const order = sql.join(
    states.map((state, i) => sql`WHEN ${state} THEN ${i}`),
    sql` `,
  );
  return qb
    .select()
    .from(moves)
    .where(lte(moves.movedUntil, now))
    .orderBy(sql`CASE ${moves.state} ${order} END`, moves.since)
    .limit(limit);
}

/** SQL condition: the workspace's keys may soon have to be looked up in another database. */
export const IS_LEAVING = sql`EXISTS (SELECT 1 FROM ${moves}
  WHERE ${moves.workspaceId} = ${workspaces.id} AND ${moves.gatesTold} IS NOT NULL)`;

/** A workspace that lives in this database; undefined if it does not. */
export function findLiving(workspaceId: string): Statements<Workspace | undefined> {
  const found = qb
    .select(MOVED_FIELDS)
    .from(workspaces)
    .where(and(eq(workspaces.id, workspaceId), isNull(workspaces.database)));
  return readAs(found, ([row]) => row);
}

/** The position of a move that has copied nothing yet. */
export const START: MovePosition = { kind: 0, after: null };

/**
 * Begins a move: from now on, triggers note the workspace's changes. Changes nothing if it does not live
 * here, or is being moved or erased.
 *
 * @returns whether it is being erased.
 */
export function beginMove(
  workspaceId: string,
  moveId: string,
  to: string,
  now: number,
): Statements<boolean> {
  const isHere = and(eq(workspaces.id, workspaceId), isNull(workspaces.database));
  const statements = inOrder([
    sql`INSERT INTO ${moves} (workspace_id, state, move_id, other, position, since)
      SELECT ${workspaceId}, 'copying', ${moveId}, ${to}, ${JSON.stringify(START)}, ${now}
      FROM ${workspaces} WHERE ${isHere} AND NOT ${workspaces.erasing}
      ON CONFLICT (workspace_id) DO NOTHING`,
    qb.select({ erasing: workspaces.erasing }).from(workspaces).where(isHere),
  ]);
  return readAs(statements, ([, [workspace]]) => workspace?.erasing ?? false);
}

/**
 * Keeps a workspace that is about to be erased from being moved.
 *
 * @returns whether it is already moving; then it cannot be erased.
 */
export function beginErasure(workspaceId: string): Statements<boolean> {
  const statements = inOrder([
    qb
      .update(workspaces)
      .set({ erasing: true })
      .where(
        sql`${workspaces.id} = ${workspaceId} AND ${workspaces.database} IS NULL
          AND NOT EXISTS (SELECT 1 FROM ${moves} WHERE ${isOf(workspaceId)})`,
      ),
    findMove(workspaceId),
  ]);
  return readAs(statements, ([, found]) => found !== undefined);
}

/** The states of a move in the source. */
const AT_SOURCE: MoveState[] = ["copying", "draining", "closed", "gone"];

/**
 * Takes over a move unless another mover owns it, or it is waiting to be tried again.
 *
 * @param isUrgent whether to take it over even if it is waiting.
 * @returns the move; undefined if it could not be taken over, or is over.
 */
export function takeMove(
  move: Move,
  mover: string,
  now: number,
  isUrgent: boolean,
): Statements<Move | undefined> {
  const isFree = or(
    eq(moves.movedBy, mover),
    lte(moves.movedUntil, now),
    isUrgent ? isNull(moves.movedBy) : undefined,
  );
  const statements = inOrder([
    qb
      .update(moves)
      .set({ movedBy: mover, movedUntil: now + MOVER_MS })
      .where(and(isMoveIn(move, AT_SOURCE), isFree)),
    findMove(move.workspaceId),
  ]);
  return readAs(statements, ([, found]) => (found?.movedBy === mover ? found : undefined));
}

/**
 * Releases a move for the next mover; until then, deliveries need not wait.
 *
 * @param until when the sweep may try again.
 */
export function releaseMove(workspaceId: string, mover: string, until: number): Executable {
  const state = sql`CASE ${moves.state} WHEN 'draining' THEN 'copying' ELSE ${moves.state} END`;
  return qb
    .update(moves)
    .set({ movedBy: null, movedUntil: until, state })
    .where(and(isOf(workspaceId), eq(moves.movedBy, mover)));
}

export function updateMove(
  workspaceId: string,
  fields: Partial<Omit<Move, "workspaceId" | "moveId">>,
): Executable {
  return qb.update(moves).set(fields).where(isOf(workspaceId));
}

/** Renews a mover's ownership of a move. */
export function renewMove(workspaceId: string, now: number): Executable {
  return updateMove(workspaceId, { movedUntil: now + MOVER_MS });
}

export function deleteChanges(workspaceId: string, through: number): Executable {
  return qb
    .delete(changes)
    .where(and(eq(changes.workspaceId, workspaceId), lte(changes.number, through)));
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
        sql`${changes.workspaceId} = ${workspaceId} AND NOT EXISTS (SELECT 1 FROM ${moves} WHERE ${isOf(workspaceId)})`,
      ),
    findMove(workspaceId),
  ]);
  return readAs(statements, ([, , found]) => found?.moveId !== moveId);
}

/**
 * SQL condition: the workspace, of which this database has rows, may be written to here. It is not closed
 * or arriving, and has not left.
 */
export function isWritable(workspaceId: Column): SQL {
  return isNotMoving(workspaceId, sql`${moves.state} NOT IN ('copying', 'draining')`);
}

/** SQL condition: its subscriptions may be leased here, too, because it is not about to leave. */
export function isLeasable(workspaceId: Column): SQL {
  return isNotMoving(workspaceId, sql`${moves.state} <> 'copying'`);
}

function isNotMoving(workspaceId: Column, inState: SQL): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${moves}
    WHERE ${moves.workspaceId} = ${workspaceId} AND ${inState})`;
}
