import { and, eq, inArray, lte, or, type SQL, sql } from "drizzle-orm";
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
 * what each means. Only who has taken the move changes them.
 */

/** A move as the database that the workspace leaves knows it. */
export type Move = typeof moves.$inferSelect;

/** The row of a workspace, as it is copied. */
export type Workspace = Pick<
  typeof workspaces.$inferSelect,
  "id" | "name" | "adminEmails" | "accessGranted" | "webhooksMax" | "createdAt"
>;

const isOf = (workspaceId: string) => eq(moves.workspaceId, workspaceId);

/** True in SQL while the mover has the move, which is in one of these states. */
function isMovedBy(workspaceId: string, mover: string, states: MoveState[]): SQL {
  return sql`EXISTS (SELECT 1 FROM ${moves}
    WHERE ${isOf(workspaceId)} AND ${moves.movedBy} = ${mover} AND ${inArray(moves.state, states)})`;
}

/** Rows of a workspace may be written by who moves it here. */
export function mayArrive(workspaceId: string, mover: string): SQL {
  return isMovedBy(workspaceId, mover, ["arriving"]);
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

/** Workspaces that are leaving this database, or have left something behind. */
export function listMoves(limit: number): Statements<Move[]> {
  return rows(
    select(allOf())
      .from(moves)
      .where(inArray(moves.state, ["copying", "draining", "closed", "gone"]))
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
 * and nothing else yet. Nothing happens where it is arriving already.
 */
export function expectArrival(
  { id, createdAt }: Workspace,
  from: string,
  now: number,
): Statements<unknown> {
  // Of a move that was never begun where the workspace lives, nothing else is here.
  const isFree = sql`${moves.state} IN ('left', 'arriving')`;
  return inOrder([
    insertFrom(
      workspaces,
      { id, createdAt, name: "", adminEmails: [], database: from },
      sql`WHERE true ON CONFLICT (id) DO NOTHING`,
    ),
    sql`INSERT INTO ${moves} (workspace_id, state, other, since) VALUES (${id}, 'arriving', ${from}, ${now})
      ON CONFLICT (workspace_id) DO UPDATE
      SET state = excluded.state, other = excluded.other, since = excluded.since WHERE ${isFree}`,
  ]);
}

/** Begins a move, where the workspace lives: from now on, what is written of it is noted. */
export function beginMove(workspaceId: string, to: string, now: number): Statements<unknown> {
  const start: MovePosition = { kind: 0, after: null };
  return write(
    sql`INSERT INTO ${moves} (workspace_id, state, other, position, since)
      VALUES (${workspaceId}, 'copying', ${to}, ${JSON.stringify(start)}, ${now})
      ON CONFLICT (workspace_id) DO NOTHING`,
  );
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

/** Gives a move back, for whoever comes next. */
export function giveBackMove(workspaceId: string, mover: string): Statements<number> {
  return write(
    update(moves)
      .set({ movedUntil: 0 })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover))),
  );
}

/** Notes how far copying has come; gives 0 when the mover has the move no more. */
export function updatePosition(
  workspaceId: string,
  mover: string,
  position: MovePosition | null,
  now: number,
): Statements<number> {
  return write(
    update(moves)
      .set({ position, movedUntil: now + MOVER_MS })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover))),
  );
}

/** Forgets changes that have been copied; gives 0 when the mover has the move no more. */
export function deleteChanges(
  workspaceId: string,
  mover: string,
  through: number,
  now: number,
): Statements<number> {
  const states: MoveState[] = ["copying", "draining", "closed"];
  const statements = inOrder([
    deleteFrom(changes).where(
      and(
        eq(changes.workspaceId, workspaceId),
        lte(changes.number, through),
        isMovedBy(workspaceId, mover, states),
      ),
    ),
    update(moves)
      .set({ movedUntil: now + MOVER_MS })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover))),
  ]);
  return readAs(statements, ([, kept]) => kept);
}

/** Goes on to the next state; gives 0 when the mover has the move no more, or it is not in `from`. */
export function changeState(
  workspaceId: string,
  mover: string,
  [from, to]: [MoveState, MoveState],
  now: number,
): Statements<number> {
  return write(
    update(moves)
      .set({ state: to, since: now, movedUntil: now + MOVER_MS })
      .where(and(isOf(workspaceId), eq(moves.movedBy, mover), eq(moves.state, from))),
  );
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
 * The workspace lives where it has arrived, as it was last where it comes from. Nobody writes there
 * before `openHere`.
 */
export function liveHere(workspace: Workspace, mover: string, now: number): Statements<unknown> {
  const { id, ...fields } = workspace;
  return inOrder([
    update(workspaces)
      .set({ ...fields, database: null })
      .where(and(eq(workspaces.id, id), mayArrive(id, mover))),
    changeState(id, mover, ["arriving", "arrived"], now),
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

/** Ends a move that has not come to its switch: the workspace stays, and what has been copied is left there. */
export function cancelMove(workspaceId: string, mover: string): Statements<number> {
  const states: MoveState[] = ["copying", "draining"];
  const statements = inOrder([
    deleteFrom(changes).where(
      and(eq(changes.workspaceId, workspaceId), isMovedBy(workspaceId, mover, states)),
    ),
    deleteFrom(moves).where(
      and(isOf(workspaceId), eq(moves.movedBy, mover), inArray(moves.state, states)),
    ),
  ]);
  return readAs(statements, ([, ended]) => ended);
}
