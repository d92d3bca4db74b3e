import { and, eq, inArray, isNotNull, isNull, not, sql } from "drizzle-orm";
import { InputError } from "../../contract/input-error.ts";
import { MINUTE_MS } from "../../contract/time.ts";
import { qb } from "../../db/builder.ts";
import { commit, type Parts, type ResultsByName } from "../../db/client.ts";
import { DIRECTORY, openNamed } from "../../db/databases.ts";
import { type MovePosition, type MoveStage, moves, workspaces } from "../../db/schema.ts";
import { inGroups } from "../../groups.ts";
import { log } from "../../log.ts";
import { forgetKey } from "../../quota/forget.ts";
import { sleep } from "../../timing.ts";
import { isLeased } from "../../webhooks/dispatch/lease.ts";
import { listDue, wake } from "../../webhooks/wake.ts";
import { listLiveKeys } from "../api-keys.ts";
import { eraseLeftBehind, isEmpty } from "../lifecycle/erase.ts";
import { MOVED, MOVED_FIELDS, type OwnedTable } from "../manifest.ts";
import { findMove, type Move } from "../moves.ts";
import { inTime } from "../placement.ts";
import { insertEntry } from "../workspaces.ts";
import { countRows, findChunk, insertRows } from "./copying.ts";

/*
 * The steps of a move. Each can be repeated, by several movers at once, and after a crash: the directory
 * has the one row of the move, whose id is on the workspace's rows in the source and in the target. The
 * source is closed while its rows are copied, so all movers copy the same.
 */

/** How long a database, or the gate of a key, may take to answer a mover. */
const PATIENCE_MS = 10_000;
/** How long to wait for posts to end, before it is checked again. */
const LEASES_CHECKED_MS = 300;
/** How many gates of keys are told at once. */
const GATES_AT_ONCE = 50;
/** How long after a move what the workspace left behind is deleted: reads in progress have ended. */
const LEFT_BEHIND_MS = MINUTE_MS;

const START: MovePosition = { kind: 0, after: null };

/** A step of a move. @returns whether the next may follow at once. */
type Step = (env: Env, move: Move, hasMore: () => boolean) => Promise<boolean>;

/** The step of each stage. */
export const STEPS: Record<MoveStage, Step> = {
  leaving: leave,
  copying: copy,
  opening: open,
  cleaning: cleanUp,
};

/** SQL condition: the workspace's row, if it is held by this move. */
const isHeldBy = ({ id, workspaceId }: Pick<Move, "id" | "workspaceId">) =>
  and(eq(workspaces.id, workspaceId), eq(workspaces.moveId, id));

/** Commits statements in a database. @throws DatabaseUnreachable if it does not answer in time. */
export function ask<const P extends Parts>(
  env: Env,
  database: string,
  parts: P,
): Promise<ResultsByName<P>> {
  return inTime(database, commit(openNamed(env, database), parts), PATIENCE_MS);
}

/** Records progress in the directory, unless another mover has got further. */
async function advance(env: Env, move: Move, fields: Partial<Move>): Promise<void> {
  const { id, stage, position, workspaceId } = move;
  const isSame = and(
    ...[eq(moves.id, id), eq(moves.stage, stage)],
    sql`${moves.position} IS ${position && JSON.stringify(position)}`,
  );
  await ask(env, DIRECTORY, {
    moved: qb
      .update(moves)
      .set({ ...fields, since: Date.now() })
      .where(isSame),
  });
  if (fields.stage) logStage({ ...move, workspaceId }, fields.stage);
}

export function logStage(
  { workspaceId, from, to }: Move,
  stage: MoveStage | "cancelled" | "done",
): void {
  log("move", { workspaceId, from, to, stage });
}

/**
 * Prepares the target, lets the posts in progress end while none begin, and closes the source.
 *
 * @throws InputError if the move cannot be; it is cancelled then.
 */
async function leave(env: Env, move: Move): Promise<boolean> {
  const { id, workspaceId, from, to, createdAt } = move;
  const isOwn = eq(workspaces.id, workspaceId);
  const hold = { hold: workspaces.hold, moveId: workspaces.moveId };
  // First: a target that does not answer costs no pause.
  const {
    found: [target],
  } = await ask(env, to, {
    entry: insertEntry({ id: workspaceId, createdAt }, from),
    arriving: qb
      .update(workspaces)
      .set({ hold: "arriving", moveId: id })
      .where(
        and(
          isOwn,
          isNotNull(workspaces.database),
          isNull(workspaces.moveId),
          isEmpty(MOVED, workspaceId),
        ),
      ),
    found: qb.select(hold).from(workspaces).where(isOwn),
  });
  if (target?.moveId !== id) {
    await cancel(env, move);
    throw new InputError("database", `what this workspace left in ${to} is still being deleted`);
  }
  const {
    found: [source],
    rows,
  } = await ask(env, from, {
    closed: qb
      .update(workspaces)
      .set({ hold: "closed" })
      .where(
        and(
          isHeldBy(move),
          eq(workspaces.hold, "draining"),
          not(isLeased(workspaceId, Date.now())),
        ),
      ),
    draining: qb
      .update(workspaces)
      .set({ hold: "draining", moveId: id })
      .where(
        and(
          isOwn,
          isNull(workspaces.database),
          isNull(workspaces.hold),
          eq(workspaces.erasing, false),
        ),
      ),
    found: qb.select(hold).from(workspaces).where(isOwn),
    rows: countRows(workspaceId),
  });
  if (source?.moveId !== id) {
    await cancel(env, move);
    throw new InputError("workspaceId", "this workspace cannot be moved: it is being erased");
  }
  if (source.hold === "closed")
    await advance(env, move, { stage: "copying", position: START, rows });
  else await sleep(LEASES_CHECKED_MS);
  return true;
}

/** Copies the next chunk, or, if there is none, makes the directory point to the target. */
async function copy(env: Env, move: Move): Promise<boolean> {
  const { workspaceId, from, to, position } = move;
  if (!position) return point(env, move);
  const owned = MOVED[position.kind] as OwnedTable;
  const { chunk } = await ask(env, from, { chunk: findChunk(workspaceId, owned, position.after) });
  if (chunk.rows.length > 0) {
    const isArriving = sql`EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isHeldBy(move)} AND ${workspaces.hold} = 'arriving')`;
    const { found } = await ask(env, to, {
      inserted: insertRows(owned, chunk.rows, isArriving),
      found: qb.select({ id: workspaces.id }).from(workspaces).where(isHeldBy(move)),
    });
    if (found.length === 0) throw new Error(`${to} has not kept what was copied: cancel the move`);
  }
  const next = chunk.next
    ? { kind: position.kind, after: chunk.next }
    : { kind: position.kind + 1, after: null };
  const copied = move.copied + chunk.rows.length;
  await advance(env, move, { position: next.kind < MOVED.length ? next : null, copied });
  return true;
}

/** Makes the directory say that the workspace lives in the target. Nobody can write to it yet. */
async function point(env: Env, move: Move): Promise<boolean> {
  const { id, workspaceId, from, to } = move;
  const {
    found: [fields],
  } = await ask(env, from, {
    found: qb.select(MOVED_FIELDS).from(workspaces).where(isHeldBy(move)),
  });
  if (!fields) throw new Error(`${from} does not have the workspace any more`);
  // From the cancellation on, it must not.
  const isOn = sql`EXISTS (SELECT 1 FROM ${moves} WHERE ${moves.id} = ${id} AND ${moves.stage} = 'copying')`;
  const arrived = qb
    .update(workspaces)
    .set({ ...fields, database: null, hold: "closed" })
    .where(
      and(isHeldBy(move), eq(workspaces.hold, "arriving"), to === DIRECTORY ? isOn : undefined),
    );
  if (to !== DIRECTORY) await ask(env, to, { arrived });
  await ask(env, DIRECTORY, {
    pointed:
      to === DIRECTORY
        ? arrived
        : qb
            .update(workspaces)
            .set({ database: to })
            .where(and(eq(workspaces.id, workspaceId), isOn)),
    moved: qb
      .update(moves)
      .set({ stage: "opening", since: Date.now() })
      .where(and(eq(moves.id, id), eq(moves.stage, "copying"))),
  });
  logStage(move, "opening");
  return true;
}

/** Opens the workspace in the target, once all gates of its keys look it up there. */
async function open(env: Env, move: Move): Promise<boolean> {
  const { workspaceId, from, to } = move;
  const directory = openNamed(env, DIRECTORY);
  const keys = await inTime(
    DIRECTORY,
    listLiveKeys(directory, workspaceId, Date.now()),
    PATIENCE_MS,
  );
  for (const group of inGroups(keys, GATES_AT_ONCE))
    await Promise.all(
      group.map((key) => inTime("the gate of a key", forgetKey(env, key), PATIENCE_MS)),
    );
  if (from !== DIRECTORY)
    await ask(env, from, {
      left: qb.update(workspaces).set({ database: to }).where(isHeldBy(move)),
    });
  const { due } = await ask(env, to, {
    opened: qb.update(workspaces).set({ hold: null, moveId: null }).where(isHeldBy(move)),
    due: listDue(workspaceId, Date.now()),
  });
  await advance(env, move, { stage: "cleaning" });
  await wake(env, to, due);
  return true;
}

/** Deletes what the workspace left behind. */
async function cleanUp(env: Env, move: Move, hasMore: () => boolean): Promise<boolean> {
  if (Date.now() - move.since < LEFT_BEHIND_MS) return false;
  if (!(await clean(env, move.from, move, hasMore))) return false;
  await ask(env, DIRECTORY, { done: qb.delete(moves).where(eq(moves.id, move.id)) });
  logStage(move, "done");
  return false;
}

/** Deletes what a move has left in a database where the workspace does not live. @returns whether it is done. */
async function clean(
  env: Env,
  database: string,
  { id, workspaceId }: Pick<Move, "id" | "workspaceId">,
  hasMore: () => boolean,
): Promise<boolean> {
  for (;;) {
    const { isDone } = await ask(env, database, { isDone: eraseLeftBehind(workspaceId, id) });
    if (isDone) return true;
    if (!hasMore()) return false;
  }
}

/** Cancels a move, unless the directory points to the target. The target finds out by itself. */
export async function cancel(env: Env, move: Move): Promise<void> {
  const { cancelled } = await ask(env, DIRECTORY, {
    cancelled: qb
      .delete(moves)
      .where(and(eq(moves.id, move.id), inArray(moves.stage, ["leaving", "copying"])))
      .returning({ id: moves.id }),
  });
  if (cancelled.length > 0) logStage(move, "cancelled");
  await settle(env, move.from, move, () => false);
}

/**
 * Ends what a move has left in a database, if it is over: opens the workspace if it lives there, else
 * deletes what is there.
 */
export async function settle(
  env: Env,
  database: string,
  held: Pick<Move, "id" | "workspaceId">,
  hasMore: () => boolean,
): Promise<void> {
  const { workspaceId } = held;
  const {
    move,
    found: [entry],
  } = await ask(env, DIRECTORY, {
    move: findMove(workspaceId),
    found: qb
      .select({ database: workspaces.database })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
  });
  if (move?.id === held.id) return;
  if (entry && (entry.database ?? DIRECTORY) === database) {
    const { due } = await ask(env, database, {
      opened: qb.update(workspaces).set({ hold: null, moveId: null }).where(isHeldBy(held)),
      due: listDue(workspaceId, Date.now()),
    });
    await wake(env, database, due);
    return;
  }
  await ask(env, database, {
    gone: qb
      .update(workspaces)
      .set({ hold: "closed", database: entry?.database ?? DIRECTORY })
      .where(isHeldBy(held)),
  });
  await clean(env, database, held, hasMore);
}
