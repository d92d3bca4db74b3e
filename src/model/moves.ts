import { and, eq, inArray, isNotNull, lte, or, sql } from "drizzle-orm";
import { MOVER_MS } from "../contract/limits.ts";
import { deleteFrom, insertFrom, select, update } from "../db/builder.ts";
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
 * The states of a workspace that goes from one database, where it lives, to another. `MoveState` says
 * what each means. Only who has taken the move changes them. Every write of a mover checks, in its own
 * transaction, that it still has the move: it may have hung, and another one may have gone on.
 */

/** A move as the database that the workspace leaves knows it. */
export type Move = typeof moves.$inferSelect;

/** The row of a workspace, as it is copied. */
export type Workspace = Pick<
  typeof workspaces.$inferSelect,
  "id" | "name" | "adminEmails" | "accessGranted" | "webhooksMax" | "createdAt"
>;

const isOf = (workspaceId: string) => eq(moves.workspaceId, workspaceId);

/**
 * Fails the transaction that it is part of, unless the mover has the move, in one of these states:
 * `isOvertaken` knows the error.
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

/** Whether a transaction failed because its mover has the move no more. */
export function isOvertaken(error: unknown): boolean {
  return (
    error instanceof Error &&
    error.message.includes("NOT NULL constraint failed: moves.workspace_id")
  );
}

/** The move of a workspace that this database has a part in; undefined without one. */
export function findMove(workspaceId: string): Statements<Move | undefined> {
  const found = rows(select(allOf()).from(moves).where(isOf(workspaceId)));
  return readAs(found, ([move]) => move);
}

const allOf = () => {
  const { workspaceId, state, other, position, since, movedBy, movedUntil } = moves;
  return { workspaceId, state, other, position, since, movedBy, movedUntil };
};

/**
 * Workspaces that are leaving this database, or have left something behind: first those whose writes
 * wait, then those whose deliveries do, and those that need the most time last.
 */
export function listMoves(limit: number): Statements<Move[]> {
  const states: MoveState[] = ["closed", "draining", "cancelled", "gone", "copying"];
  const order = sql.join(
    states.map((state, i) => sql`WHEN ${state} THEN ${i}`),
    sql` `,
  );
  return rows(
    select(allOf())
      .from(moves)
      .where(inArray(moves.state, states))
      .orderBy(sql`CASE ${moves.state} ${order} END`, moves.since)
      .limit(limit),
  );
}

/** The row of a workspace that lives in this database; undefined where it does not. */
export function findLiving(id: string): Statements<Workspace | undefined> {
  const { name, adminEmails, accessGranted, webhooksMax, createdAt } = workspaces;
  const fields = { id: workspaces.id, name, adminEmails, accessGranted, webhooksMax, createdAt };
  const found = rows(
    select(fields)
      .from(workspaces)
      .where(and(eq(workspaces.id, id), sql`${workspaces.database} IS NULL`)),
  );
  return readAs(found, ([row]) => row);
}

/**
 * Begins a move, where the workspace is to arrive: its line, which names the database that it lives in,
 * and nothing else yet. Nothing happens where it is arriving already, or lives by now.
 *
 * @returns its move there, as it is then.
 */
export function expectArrival(
  { id, createdAt }: Workspace,
  from: string,
  now: number,
): Statements<Move | undefined> {
  // Of a move that was never begun where the workspace lives, nothing else is here.
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

/** Begins a move, where the workspace lives: from now on, what is written of it is noted. */
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
 * Keeps a workspace from being moved while it is erased, where it lives.
 *
 * @returns its move, if it is on its way: then it cannot be erased.
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

/** Takes a move, unless somebody else has it; gives it when it is taken. */
export function takeMove(
  workspaceId: string,
  mover: string,
  now: number,
): Statements<Move | undefined> {
  const isFree = or(eq(moves.movedBy, mover), lte(moves.movedUntil, now));
  const statements = inOrder([
    update(moves)
      .set({ movedBy: mover, movedUntil: now + MOVER_MS })
      .where(and(isOf(workspaceId), isFree)),
    findMove(workspaceId),
  ]);
  return readAs(statements, ([, move]) => (move?.movedBy === mover ? move : undefined));
}

/** Keeps everybody else from writing where the workspace arrives, those who took the move before included. */
export function takeArrival(workspaceId: string, mover: string): Statements<unknown> {
  return write(
    update(moves)
      .set({ movedBy: mover })
      .where(and(isOf(workspaceId), inArray(moves.state, ["arriving", "arrived"]))),
  );
}

/**
 * Notes in the directory who moves a workspace between two other databases: of movers, only the one who did
 * so last changes its line.
 */
export function takeLine(
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

/** Gives a move back, for whoever comes next; until then, it keeps no deliveries waiting. */
export function giveBackMove(workspaceId: string, mover: string): Statements<unknown> {
  const state = sql`CASE ${moves.state} WHEN 'draining' THEN 'copying' ELSE ${moves.state} END`;
  return write(
    update(moves)
      .set({ movedUntil: 0, state })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover))),
  );
}

/** Notes how far copying has come. */
export function updatePosition(
  workspaceId: string,
  position: MovePosition | null,
): Statements<unknown> {
  return write(update(moves).set({ position }).where(isOf(workspaceId)));
}

/** Keeps a move for who has it. */
export function keepMove(workspaceId: string, now: number): Statements<unknown> {
  return write(
    update(moves)
      .set({ movedUntil: now + MOVER_MS })
      .where(isOf(workspaceId)),
  );
}

/** Forgets changes that have been copied. */
export function deleteChanges(workspaceId: string, through: number): Statements<unknown> {
  return write(
    deleteFrom(changes).where(
      and(eq(changes.workspaceId, workspaceId), lte(changes.number, through)),
    ),
  );
}

/** Goes on to another state. */
export function changeState(
  workspaceId: string,
  state: MoveState,
  now: number,
): Statements<unknown> {
  return write(update(moves).set({ state, since: now }).where(isOf(workspaceId)));
}

const held = prepared(
  select({ id: subscriptions.id })
    .from(subscriptions)
    .where(and(eq(subscriptions.workspaceId, sql.placeholder("workspaceId")), sql`NOT ${IS_FREE}`))
    .limit(1),
);

/** Whether a dispatch holds some subscription of the workspace. */
export function isHeld(workspaceId: string, now: number): Statements<boolean> {
  return readAs(held({ workspaceId, now, ...NOBODY }), ([one]) => one !== undefined);
}

/**
 * The workspace lives where it has arrived, as it was last where it comes from; its events are yet to
 * be measured. Nobody writes there before `openHere`. Done once, it stays so.
 */
export function liveHere({ id, ...fields }: Workspace, now: number): Statements<unknown> {
  const unmeasured = { sweptTo: "", sizedTo: "", sizedBytes: 0, trimmedTo: "" };
  return inOrder([
    update(workspaces)
      .set({ ...fields, ...unmeasured, database: null })
      .where(and(eq(workspaces.id, id), isNotNull(workspaces.database))),
    changeState(id, "arrived", now),
  ]);
}

/**
 * Notes that a workspace lives in another database.
 *
 * @param before what the row says until then: null where the workspace lived.
 */
export function pointTo(
  workspaceId: string,
  before: string | null,
  database: string,
): Statements<unknown> {
  return write(
    update(workspaces)
      .set({ database })
      .where(and(eq(workspaces.id, workspaceId), sql`${workspaces.database} IS ${before}`)),
  );
}

/** Lets everybody write where the workspace has arrived. */
export function openHere(workspaceId: string, mover: string): Statements<unknown> {
  return write(
    deleteFrom(moves).where(
      and(isOf(workspaceId), eq(moves.movedBy, mover), eq(moves.state, "arrived")),
    ),
  );
}

/** Ends a move that has not come to its switch: the workspace stays, and only the other database must be told. */
export function cancelMove(workspaceId: string, now: number): Statements<unknown> {
  return inOrder([
    deleteFrom(changes).where(eq(changes.workspaceId, workspaceId)),
    changeState(workspaceId, "cancelled", now),
  ]);
}

/** What has been copied is deleted: the workspace does not arrive. Nothing happens where that is known. */
export function cancelArrival(
  workspaceId: string,
  mover: string,
  now: number,
): Statements<unknown> {
  return write(
    update(moves)
      .set({ state: "gone", since: now, movedUntil: 0 })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover), eq(moves.state, "arriving"))),
  );
}

/** Forgets a move that has ended. */
export function deleteMove(workspaceId: string): Statements<unknown> {
  return write(deleteFrom(moves).where(isOf(workspaceId)));
}
