import { and, eq, gt, inArray, isNotNull, isNull, not, sql } from "drizzle-orm";
import { InputError } from "../../contract/input-error.ts";
import { qb } from "../../db/builder.ts";
import { commit, type Executable, type Parts, type ResultsByName } from "../../db/client.ts";
import { DIRECTORY, openNamed } from "../../db/databases.ts";
import { type MoveStage, moves, subscriptions, workspaces } from "../../db/schema.ts";
import { sendWakeUps } from "../../delivery/messages.ts";
import { isLeased } from "../../delivery/round.ts";
import { listDue } from "../../delivery/schedule.ts";
import { log } from "../../log.ts";
import { invalidateKey } from "../../rate-limit/forget.ts";
import { sleep } from "../../timing.ts";
import { listLiveKeys } from "../api-keys.ts";
import { eraseLeftBehind, isEmpty } from "../lifecycle/erase.ts";
import { beingErased } from "../moves.ts";
import { inTime } from "../placement.ts";
import { countRows } from "../rows.ts";
import { MOVED, MOVED_FIELDS } from "../table-registry.ts";
import { insertEntry } from "../workspaces.ts";
import { findRows, insertRows, measureChunk } from "./copying.ts";

/*
 * The steps of a move. The directory has one row for each move. Its ID is the lock token (`moveId`) on the
 * workspace's row in the source and in the target. Steps are idempotent, so that several movers, or one after
 * a crash, can run them. The source is locked while its rows are copied, so all movers copy the same. `settle`
 * releases whatever a move has locked, once it is over.
 */

/** How long a database, or the gates of keys, may take to answer a mover. */
const PATIENCE_MS = 10_000;
/** How long to wait for requests to end, before it is checked again. */
const LEASES_CHECKED_MS = 300;

/** A move of a workspace from one database to another, as stored in the directory. */
export type Move = typeof moves.$inferSelect;
/** The ID and the workspace of a move: enough to find the rows that it has locked. */
type LockedBy = Pick<Move, "id" | "workspaceId">;

/** The step of each stage. In `cleaning`, nothing is left to do but to wait. */
export const STEPS: Record<
  Exclude<MoveStage, "cleaning">,
  (env: Env, move: Move) => Promise<void>
> = { leaving: leave, copying: copy, opening: open };

/** SQL condition: the workspace's row, if this move has locked it. */
const isLockedBy = ({ id, workspaceId }: LockedBy) =>
  and(eq(workspaces.id, workspaceId), eq(workspaces.moveId, id));

/** The write lock of the workspace's row, if this move holds it. */
const findLock = (move: LockedBy) =>
  qb.select({ writeLock: workspaces.writeLock }).from(workspaces).where(isLockedBy(move));

/** Commits statements in a database. @throws DatabaseUnreachable if it does not answer in time. */
export function ask<const P extends Parts>(
  env: Env,
  database: string,
  parts: P,
): Promise<ResultsByName<P>> {
  return inTime(database, commit(openNamed(env, database), parts), PATIENCE_MS);
}

/** A workspace's move, if there is one, and the database that the directory says it lives in. */
export async function find(env: Env, workspaceId: string) {
  const {
    found: [move],
    entries: [entry],
  } = await ask(env, DIRECTORY, {
    found: qb.select().from(moves).where(eq(moves.workspaceId, workspaceId)),
    entries: qb
      .select({ database: workspaces.database })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
  });
  return { move, home: entry?.database ?? DIRECTORY };
}

/** Records progress in the directory, unless another mover has got further. @param first what goes before it. */
async function advance(
  env: Env,
  move: Move,
  fields: Partial<Move>,
  first?: Executable,
): Promise<void> {
  const isSame = and(
    ...[eq(moves.id, move.id), eq(moves.stage, move.stage)],
    sql`${moves.position} IS ${move.position && JSON.stringify(move.position)}`,
  );
  await ask(env, DIRECTORY, {
    first,
    advanced: qb
      .update(moves)
      .set({ ...fields, since: Date.now() })
      .where(isSame),
  });
  if (fields.stage) logStage(move, fields.stage);
}

export function logStage(
  { workspaceId, from, to }: Move,
  stage: MoveStage | "cancelled" | "done",
): void {
  log("move", { workspaceId, from, to, stage });
}

/**
 * Prepares the target, lets the requests in progress end while none begin, and locks the source.
 *
 * @throws InputError if the move cannot be; it is cancelled then.
 */
async function leave(env: Env, move: Move): Promise<void> {
  const { id, workspaceId, from, to, createdAt } = move;
  const isOwn = eq(workspaces.id, workspaceId);
  // First: a target that does not answer costs no pause.
  const target = await ask(env, to, {
    entry: insertEntry({ id: workspaceId, createdAt }, from),
    arriving: qb
      .update(workspaces)
      .set({ writeLock: "arriving", moveId: id })
      .where(
        and(
          isOwn,
          isNotNull(workspaces.database),
          isNull(workspaces.moveId),
          isEmpty(MOVED, workspaceId),
        ),
      ),
    found: findLock(move),
  });
  if (target.found.length === 0) {
    await cancel(env, move);
    throw new InputError("database", `what this workspace left in ${to} is still being deleted`);
  }
  // Before writes are refused, because counting takes a while.
  if (move.rows === 0) {
    const { rows } = await ask(env, from, { rows: countRows(MOVED, workspaceId) });
    await advance(env, move, { rows });
  }
  const {
    found: [source],
  } = await ask(env, from, {
    locked: qb
      .update(workspaces)
      .set({ writeLock: "locked" })
      .where(
        and(
          isLockedBy(move),
          eq(workspaces.writeLock, "draining"),
          not(isLeased(workspaceId, Date.now())),
        ),
      ),
    draining: qb
      .update(workspaces)
      .set({ writeLock: "draining", moveId: id })
      .where(
        and(
          isOwn,
          isNull(workspaces.database),
          isNull(workspaces.writeLock),
          eq(workspaces.erasing, false),
        ),
      ),
    found: findLock(move),
  });
  if (!source) {
    await cancel(env, move);
    throw beingErased();
  }
  if (source.writeLock !== "locked") return sleep(LEASES_CHECKED_MS);
  await advance(env, move, { stage: "copying" });
}

/** Copies the next chunk, or, if there is none, makes the directory point to the target. */
async function copy(env: Env, move: Move): Promise<void> {
  const { workspaceId, from, to } = move;
  const { kind, after } = move.position ?? { kind: 0, after: null };
  const owned = MOVED[kind];
  if (!owned) return point(env, move);
  const { chunk } = await ask(env, from, { chunk: measureChunk(workspaceId, owned, after) });
  const { rows } = await ask(env, from, {
    rows: findRows(workspaceId, owned, after, chunk.rows),
  });
  const isArriving = sql`EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isLockedBy(move)} AND ${workspaces.writeLock} = 'arriving')`;
  await ask(env, to, { inserted: insertRows(owned, rows, isArriving) });
  const position = chunk.next ? { kind, after: chunk.next } : { kind: kind + 1, after: null };
  await advance(env, move, { position, copied: move.copied + rows.length });
}

/** Makes the directory say that the workspace lives in the target. Nobody can write to it yet. */
async function point(env: Env, move: Move): Promise<void> {
  const { id, workspaceId, from, to } = move;
  const {
    found: [fields],
  } = await ask(env, from, {
    found: qb.select(MOVED_FIELDS).from(workspaces).where(isLockedBy(move)),
  });
  if (!fields) throw new Error(`${from} does not have the workspace any more`);
  const { found } = await ask(env, to, {
    arrived: qb
      .update(workspaces)
      // The directory's own row goes on pointing to the source.
      .set({ ...fields, database: to === DIRECTORY ? from : null, writeLock: "locked" })
      .where(and(isLockedBy(move), eq(workspaces.writeLock, "arriving"))),
    found: findLock(move),
  });
  if (found.length === 0) throw new Error(`${to} has not kept what was copied: cancel the move`);
  // From the cancellation on, it must not.
  const isOn = sql`EXISTS (SELECT 1 FROM ${moves} WHERE ${moves.id} = ${id} AND ${moves.stage} = 'copying')`;
  const pointed = qb
    .update(workspaces)
    .set({ database: to === DIRECTORY ? null : to })
    .where(and(eq(workspaces.id, workspaceId), isOn));
  await advance(env, move, { stage: "opening" }, pointed);
}

/** Opens the workspace in the target, once all gates of its keys look it up there. */
async function open(env: Env, move: Move): Promise<void> {
  const { workspaceId, from, to } = move;
  const found = listLiveKeys(openNamed(env, DIRECTORY), workspaceId, Date.now());
  const keys = await inTime(DIRECTORY, found, PATIENCE_MS);
  const told = Promise.all(keys.map((key) => invalidateKey(env, key)));
  await inTime("the gate of a key", told, PATIENCE_MS);
  if (from !== DIRECTORY)
    await ask(env, from, {
      left: qb.update(workspaces).set({ database: to }).where(isLockedBy(move)),
    });
  await release(env, to, move);
  await advance(env, move, { stage: "cleaning" });
}

/** Unlocks the workspace in the database where it lives, and wakes its subscriptions. */
async function release(env: Env, database: string, lock: LockedBy): Promise<void> {
  const { due } = await ask(env, database, {
    unlocked: qb.update(workspaces).set({ writeLock: null, moveId: null }).where(isLockedBy(lock)),
    // Delayed messages that are on their way name the former database.
    unnoted: qb
      .update(subscriptions)
      .set({ wakeAt: 0 })
      .where(and(eq(subscriptions.workspaceId, lock.workspaceId), gt(subscriptions.wakeAt, 0))),
    due: listDue(lock.workspaceId, Date.now()),
  });
  await sendWakeUps(env, database, due);
}

/**
 * Cancels a move, unless the directory points to the target. The sweep settles what it left there.
 *
 * @returns whether it was cancelled.
 */
export async function cancel(env: Env, move: Move): Promise<boolean> {
  const { cancelled } = await ask(env, DIRECTORY, {
    cancelled: qb
      .delete(moves)
      .where(and(eq(moves.id, move.id), inArray(moves.stage, ["leaving", "copying"])))
      .returning({ id: moves.id }),
  });
  if (cancelled.length > 0) logStage(move, "cancelled");
  await settle(env, move.from, move, () => false);
  return cancelled.length > 0;
}

/**
 * Releases what a move has locked in a database, once it is over: unlocks the workspace if it lives there,
 * and otherwise deletes what is there.
 */
export async function settle(
  env: Env,
  database: string,
  lock: LockedBy,
  hasMore: () => boolean,
): Promise<void> {
  const { move, home } = await find(env, lock.workspaceId);
  if (move?.id === lock.id) return;
  if (home === database) return release(env, database, lock);
  await ask(env, database, {
    locked: qb
      .update(workspaces)
      .set({ writeLock: "locked", database: home })
      .where(isLockedBy(lock)),
  });
  const erased = () => ask(env, database, { isDone: eraseLeftBehind(lock.workspaceId, lock.id) });
  while (!(await erased()).isDone && hasMore());
}
