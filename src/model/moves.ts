import { and, eq, inArray, isNotNull, lte, or, sql } from "drizzle-orm";
import { MOVER_MS } from "../contract/limits.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { inOrder, prepared, readAs, rows, type Statements, write } from "../db/client.ts";
import {
  changes,
  type MovePosition,
  type MoveState,
  moves,
  subscriptions,
  workspaces,
} from "../db/schema.ts";
import { IS_FREE, NOBODY } from "./holds.ts";

/*
 * Moving a workspace from one database, the source, to another, the target. `MoveState` explains the
 * states. Only the mover that owns the move changes them. Each of its writes checks, in the same
 * transaction, that it still owns the move: it may have hung, and another one taken over.
 */

/** A move, as stored in the source. */
export type Move = typeof moves.$inferSelect;

/** The fields of a workspace that move with it. */
export type Workspace = Pick<
  typeof workspaces.$inferSelect,
  "id" | "name" | "adminEmails" | "accessGranted" | "dataKey" | "webhooksMax" | "createdAt"
>;

const isOf = (workspaceId: string) => eq(moves.workspaceId, workspaceId);

/**
 * Fails its transaction unless the mover owns the move and the move is in one of these states;
 * `isOvertaken` recognises the error.
 */
export function expectMover(
  workspaceId: string,
  mover: string,
  states: MoveState[],
): Statements<unknown> {
  const isIts = and(isOf(workspaceId), eq(moves.movedBy, mover), inArray(moves.state, states));
  return write(
    sql`INSERT INTO ${moves} (workspace_id, state, other, since)
      SELECT NULL, '', '', 0 WHERE NOT EXISTS (SELECT 1 FROM ${moves} WHERE ${isIts})`,
  );
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
  const found = rows(qb.select(allOf()).from(moves).where(isOf(workspaceId)));
  return readAs(found, ([move]) => move);
}

const allOf = () => {
  const { workspaceId, state, other, position, since, movedBy, movedUntil } = moves;
  return { workspaceId, state, other, position, since, movedBy, movedUntil };
};

/**
 * The moves of workspaces that are leaving this database or have left data behind. Those whose writes
 * are waiting come first, then those whose deliveries are; those that take longest come last.
 */
export function listMoves(limit: number): Statements<Move[]> {
  const states: MoveState[] = ["closed", "draining", "cancelled", "gone", "copying"];
  const order = sql.join(
    states.map((state, i) => sql`WHEN ${state} THEN ${i}`),
    sql` `,
  );
  return rows(
    qb
      .select(allOf())
      .from(moves)
      .where(inArray(moves.state, states))
      .orderBy(sql`CASE ${moves.state} ${order} END`, moves.since)
      .limit(limit),
  );
}

/** A workspace that lives in this database; undefined if it does not. */
export function findLiving(workspaceId: string): Statements<Workspace | undefined> {
  const { id, name, adminEmails, accessGranted, dataKey, webhooksMax, createdAt } = workspaces;
  const found = rows(
    qb
      .select({ id, name, adminEmails, accessGranted, dataKey, webhooksMax, createdAt })
      .from(workspaces)
      .where(and(eq(id, workspaceId), sql`${workspaces.database} IS NULL`)),
  );
  return readAs(found, ([row]) => row);
}

/**
 * Begins a move at the target: inserts an entry that names the source, and nothing else yet. Changes
 * nothing if the workspace is already arriving, or lives there.
 *
 * @returns the move as stored in the target afterwards.
 */
export function expectArrival(
  { id, createdAt }: Workspace,
  from: string,
  now: number,
): Statements<Move | undefined> {
  // If the move was never begun at the source, the target has nothing else.
  const isFree = sql`${moves.state} IN ('left', 'arriving')`;
  const livesElsewhere = sql`${workspaces.id} = ${id} AND ${workspaces.database} IS NOT NULL`;
  const statements = inOrder([
    insertFrom(
      workspaces,
      { id, createdAt, name: "", adminEmails: [], database: from },
      sql`WHERE true ON CONFLICT (id) DO NOTHING`,
    ),
    sql`INSERT INTO ${moves} (workspace_id, state, other, since)
      SELECT ${id}, 'arriving', ${from}, ${now} FROM ${workspaces} WHERE ${livesElsewhere}
      ON CONFLICT (workspace_id) DO UPDATE
      SET state = excluded.state, other = excluded.other, since = excluded.since WHERE ${isFree}`,
    findMove(id),
  ]);
  return readAs(statements, ([, , move]) => move);
}

/** Begins a move at the source: from now on, triggers note the workspace's changes. */
export function beginMove(workspaceId: string, to: string, now: number): Statements<unknown> {
  const start: MovePosition = { kind: 0, after: null };
  return write(
    sql`INSERT INTO ${moves} (workspace_id, state, other, position, since)
      SELECT ${workspaceId}, 'copying', ${to}, ${JSON.stringify(start)}, ${now} FROM ${workspaces}
      WHERE ${workspaces.id} = ${workspaceId} AND ${workspaces.database} IS NULL
      ON CONFLICT (workspace_id) DO NOTHING`,
  );
}

/**
 * Prevents a workspace from being moved while it is erased.
 *
 * @returns its move if it is already moving; then it cannot be erased.
 */
export function beginErasure(workspaceId: string, now: number): Statements<Move | undefined> {
  const statements = inOrder([
    sql`INSERT INTO ${moves} (workspace_id, state, other, since)
      SELECT ${workspaceId}, 'erasing', '', ${now} FROM ${workspaces}
      WHERE ${workspaces.id} = ${workspaceId} AND ${workspaces.database} IS NULL
      ON CONFLICT (workspace_id) DO NOTHING`,
    findMove(workspaceId),
  ]);
  const isMoving = ({ state }: Move) => state !== "erasing" && state !== "left";
  return readAs(statements, ([, move]) => (move && isMoving(move) ? move : undefined));
}

/** Takes over a move unless another mover owns it. @returns the move; undefined if another one does. */
export function takeMove(
  workspaceId: string,
  mover: string,
  now: number,
): Statements<Move | undefined> {
  const isFree = or(eq(moves.movedBy, mover), lte(moves.movedUntil, now));
  const statements = inOrder([
    qb
      .update(moves)
      .set({ movedBy: mover, movedUntil: now + MOVER_MS })
      .where(and(isOf(workspaceId), isFree)),
    findMove(workspaceId),
  ]);
  return readAs(statements, ([, move]) => (move?.movedBy === mover ? move : undefined));
}

/** Takes over the move at the target: from now on, earlier movers can no longer write there. */
export function takeArrival(workspaceId: string, mover: string): Statements<unknown> {
  return write(
    qb
      .update(moves)
      .set({ movedBy: mover })
      .where(and(isOf(workspaceId), inArray(moves.state, ["arriving", "arrived"]))),
  );
}

/**
 * Takes over the directory's entry, for a move between two other databases: only the last mover that
 * has done so can change it.
 */
export function takeDirectoryEntry(
  workspaceId: string,
  to: string,
  mover: string,
  now: number,
): Statements<unknown> {
  return write(
    sql`INSERT INTO ${moves} (workspace_id, state, other, since, moved_by)
      VALUES (${workspaceId}, 'left', ${to}, ${now}, ${mover})
      ON CONFLICT (workspace_id) DO UPDATE SET moved_by = excluded.moved_by`,
  );
}

/** Releases a move for the next mover; until then, deliveries need not wait. */
export function releaseMove(workspaceId: string, mover: string): Statements<unknown> {
  const state = sql`CASE ${moves.state} WHEN 'draining' THEN 'copying' ELSE ${moves.state} END`;
  return write(
    qb
      .update(moves)
      .set({ movedUntil: 0, state })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover))),
  );
}

/** Stores how far copying has come. */
export function updatePosition(
  workspaceId: string,
  position: MovePosition | null,
): Statements<unknown> {
  return write(qb.update(moves).set({ position }).where(isOf(workspaceId)));
}

/** Renews a mover's ownership of a move. */
export function renewMove(workspaceId: string, now: number): Statements<unknown> {
  return write(
    qb
      .update(moves)
      .set({ movedUntil: now + MOVER_MS })
      .where(isOf(workspaceId)),
  );
}

/** Deletes changes that have been copied. */
export function deleteChanges(workspaceId: string, through: number): Statements<unknown> {
  return write(
    qb
      .delete(changes)
      .where(and(eq(changes.workspaceId, workspaceId), lte(changes.number, through))),
  );
}

/** Changes the state of a move. */
export function updateState(
  workspaceId: string,
  state: MoveState,
  now: number,
): Statements<unknown> {
  return write(qb.update(moves).set({ state, since: now }).where(isOf(workspaceId)));
}

const held = prepared(
  qb
    .select({ id: subscriptions.id })
    .from(subscriptions)
    .where(and(eq(subscriptions.workspaceId, sql.placeholder("workspaceId")), sql`NOT ${IS_FREE}`))
    .limit(1),
);

/** Whether a dispatch holds any subscription of the workspace. */
export function isHeld(workspaceId: string, now: number): Statements<boolean> {
  return readAs(held({ workspaceId, now, ...NOBODY }), ([one]) => one !== undefined);
}

/**
 * Makes the workspace live in the target, with its final fields; its events are still to be measured.
 * It cannot be written to before `openArrived`. Safe to apply twice.
 */
export function arrive({ id, ...fields }: Workspace, now: number): Statements<unknown> {
  const unmeasured = { sweptTo: "", sizedTo: "", sizedBytes: 0, trimmedTo: "" };
  return inOrder([
    qb
      .update(workspaces)
      .set({ ...fields, ...unmeasured, database: null })
      .where(and(eq(workspaces.id, id), isNotNull(workspaces.database))),
    updateState(id, "arrived", now),
  ]);
}

/**
 * Makes this database point to another one, where the workspace lives.
 *
 * @param before the database that it pointed to; null if the workspace lived here.
 */
export function pointTo(
  workspaceId: string,
  before: string | null,
  database: string,
): Statements<unknown> {
  return write(
    qb
      .update(workspaces)
      .set({ database })
      .where(and(eq(workspaces.id, workspaceId), sql`${workspaces.database} IS ${before}`)),
  );
}

/** Allows writes to a workspace that has arrived. */
export function openArrived(workspaceId: string, mover: string): Statements<unknown> {
  return write(
    qb
      .delete(moves)
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover), eq(moves.state, "arrived"))),
  );
}

/** Cancels a move that has not reached its switch, at the source; the target is still to be told. */
export function cancelMove(workspaceId: string, now: number): Statements<unknown> {
  return inOrder([
    qb.delete(changes).where(eq(changes.workspaceId, workspaceId)),
    updateState(workspaceId, "cancelled", now),
  ]);
}

/** Cancels a move at the target: the copied rows are to be deleted. Changes nothing if already done. */
export function cancelArrival(
  workspaceId: string,
  mover: string,
  now: number,
): Statements<unknown> {
  return write(
    qb
      .update(moves)
      .set({ state: "gone", since: now, movedUntil: 0 })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover), eq(moves.state, "arriving"))),
  );
}

/** Deletes a move that has ended. */
export function deleteMove(workspaceId: string): Statements<unknown> {
  return write(qb.delete(moves).where(isOf(workspaceId)));
}
