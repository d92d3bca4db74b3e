import { type Column, eq, lte, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { qb } from "../db/builder.ts";
import { readAs, type Statements } from "../db/client.ts";
import { type MoveState, moves, workspaces } from "../db/schema.ts";

/*
 * Moving a workspace from one database, the source, to another, the target (moving/). `MoveState` explains
 * the states. Once a move is over, its row is gone, and only the entry in `workspaces` says that a
 * workspace lives elsewhere.
 */

/** A move, as stored in the source. */
export type Move = typeof moves.$inferSelect;

/** SQL condition: the row of a workspace. */
export const isMoveOf = (workspaceId: string) => eq(moves.workspaceId, workspaceId);

/** The move of a workspace in which this database takes part; undefined if there is none. */
export function findMove(workspaceId: string): Statements<Move | undefined> {
  const found = qb.select().from(moves).where(isMoveOf(workspaceId));
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

/** What refuses a call about a workspace under erasure. */
export function beingErased(): InputError {
  return new InputError("workspaceId", "this workspace is being erased");
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
