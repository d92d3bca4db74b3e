import { and, eq, gt, inArray, isNotNull, isNull, sql } from "drizzle-orm";
import { InputError } from "../contract/input.ts";
import { qb } from "../db/builder.ts";
import { commit, type Part, type Parts, type ResultsOf } from "../db/client.ts";
import { DIRECTORY, openDatabase } from "../db/databases.ts";
import { type MoveStage, moves, subscriptions, workspaces } from "../db/schema.ts";
import { selectWakeUps, sendWakeUps } from "../delivery/wake.ts";
import { eraseLeftBehind, isEmpty } from "../lifecycle/erase.ts";
import { log } from "../log.ts";
import { sleep } from "../primitives/timing.ts";
import { invalidateKey } from "../rate-limit/gates.ts";
import { listLiveKeys } from "../workspaces/key-rows.ts";
import { beingErased, inTime } from "../workspaces/placement.ts";
import { countRows } from "../workspaces/rows.ts";
import { MOVED, MOVED_FIELDS } from "../workspaces/table-registry.ts";
import { insertEntry } from "../workspaces/workspaces.ts";
import { insertRows, measureChunk, selectChunk } from "./copying.ts";

/*
 * The steps of a move. The directory has one row for each move. Its ID is the lock token (`moveId`) on the workspace's
 * row in the source and in the target. The steps are idempotent, so that several callers, or one after a crash, can run
 * them. The source is locked while its rows are copied, so all callers copy the same rows. `releaseLocks` releases the locks
 * of a move that is over.
 */

/** How long a database, or the gates of keys, may take to respond. */
const TIMEOUT_MS = 10_000;
/** How long to wait before checking again whether the requests in flight have ended. */
const LEASES_CHECKED_MS = 300;

/** The row of a move in the directory. */
export type Move = typeof moves.$inferSelect;
/** The ID and the workspace of a move, which identify the rows that it has locked. */
type LockedBy = Pick<Move, "id" | "workspaceId">;

/** The step of each stage. The stage `cleanup` has none, because it only waits. */
export const STEPS: Record<
  Exclude<MoveStage, "cleanup">,
  (env: Env, move: Move) => Promise<void>
> = { draining: drain, copying: copyChunk, switching: openTarget };

/** SQL condition: the row is the workspace's own, and this move has locked it. */
const isLockedBy = ({ id, workspaceId }: LockedBy) =>
  and(eq(workspaces.id, workspaceId), eq(workspaces.moveId, id));

/** Selects the write lock of the workspace's row, if this move holds it. */
const selectLock = (move: LockedBy) =>
  qb.select({ writeLock: workspaces.writeLock }).from(workspaces).where(isLockedBy(move));

/** Commits statements in a database. @throws TemporaryError if it does not respond in time. */
export function commitIn<const P extends Parts>(
  env: Env,
  database: string,
  parts: P,
): Promise<ResultsOf<P>> {
  return inTime(database, commit(openDatabase(env, database), parts), TIMEOUT_MS);
}

/** Reads the move of a workspace, if there is one, and its database according to the directory. */
export async function findMove(env: Env, workspaceId: string) {
  const {
    found: [move],
    entries: [entry],
  } = await commitIn(env, DIRECTORY, {
    found: qb.select().from(moves).where(eq(moves.workspaceId, workspaceId)),
    entries: qb
      .select({ database: workspaces.database })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
  });
  return { move, home: entry?.database ?? DIRECTORY };
}

/**
 * Records the progress of a move in the directory, unless another caller has recorded more.
 *
 * @param first a statement that precedes it in the transaction.
 */
async function advance(env: Env, move: Move, fields: Partial<Move>, first?: Part): Promise<void> {
  const isSame = and(
    eq(moves.id, move.id),
    eq(moves.stage, move.stage),
    sql`${moves.position} IS ${move.position && JSON.stringify(move.position)}`,
  );
  await commitIn(env, DIRECTORY, {
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
 * Prepares the target, lets the requests in flight end while none start (draining), and locks the source.
 *
 * @throws InputError if the move is impossible; it is cancelled then.
 */
async function drain(env: Env, move: Move): Promise<void> {
  const { id, workspaceId, from, to, createdAt } = move;
  const isOwn = eq(workspaces.id, workspaceId);
  // The target comes first, so that one that does not respond causes no pause of deliveries.
  const target = await commitIn(env, to, {
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
    found: selectLock(move),
  });
  if (target.found.length === 0) {
    await cancel(env, move);
    throw new InputError(
      "database",
      `the rows that this workspace left in ${to} are still being deleted`,
    );
  }
  // Rows are counted before writes are blocked, because counting takes a while.
  if (move.rows === 0) {
    const { rows } = await commitIn(env, from, { rows: countRows(MOVED, workspaceId) });
    await advance(env, move, { rows });
  }
  const {
    found: [source],
  } = await commitIn(env, from, {
    locked: qb
      .update(workspaces)
      .set({ writeLock: "locked" })
      .where(
        and(
          isLockedBy(move),
          sql`NOT EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${subscriptions.workspaceId} = ${workspaceId}
            AND ${subscriptions.leasedUntil} > ${Date.now()})`,
        ),
      ),
    draining: qb
      .update(workspaces)
      .set({ writeLock: "draining", moveId: id })
      .where(and(isOwn, isNull(workspaces.writeLock), eq(workspaces.erasing, false))),
    found: selectLock(move),
  });
  if (!source) {
    await cancel(env, move);
    throw beingErased();
  }
  if (source.writeLock !== "locked") return sleep(LEASES_CHECKED_MS);
  await advance(env, move, { stage: "copying" });
}

/** Copies the next chunk. If there is none, switches the directory to the target. */
async function copyChunk(env: Env, move: Move): Promise<void> {
  const { workspaceId, from, to } = move;
  const { kind, after } = move.position ?? { kind: 0, after: null };
  const owned = MOVED[kind];
  if (!owned) return switchDirectory(env, move);
  const { chunk } = await commitIn(env, from, { chunk: measureChunk(workspaceId, owned, after) });
  const { rows } = await commitIn(env, from, {
    rows: selectChunk(workspaceId, owned, after, chunk.rows),
  });
  const isArriving = sql`EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isLockedBy(move)} AND ${workspaces.writeLock} = 'arriving')`;
  await commitIn(env, to, { inserted: insertRows(owned, rows, isArriving) });
  const position = chunk.next ? { kind, after: chunk.next } : { kind: kind + 1, after: null };
  await advance(env, move, { position, copied: move.copied + rows.length });
}

/** Switches the directory to the target, which stays locked. */
async function switchDirectory(env: Env, move: Move): Promise<void> {
  const { id, workspaceId, from, to } = move;
  const {
    found: [fields],
  } = await commitIn(env, from, {
    found: qb.select(MOVED_FIELDS).from(workspaces).where(isLockedBy(move)),
  });
  if (!fields) throw new Error(`${from} does not have the workspace any more`);
  const { found } = await commitIn(env, to, {
    arrived: qb
      .update(workspaces)
      // If the target is the directory, its row still points to the source until the switch below.
      .set({ ...fields, database: to === DIRECTORY ? from : null, writeLock: "locked" })
      .where(and(isLockedBy(move), eq(workspaces.writeLock, "arriving"))),
    found: selectLock(move),
  });
  if (found.length === 0) throw new Error(`${to} has lost the copied rows: cancel the move`);
  // A cancelled move must not switch the directory.
  const isOn = sql`EXISTS (SELECT 1 FROM ${moves} WHERE ${moves.id} = ${id})`;
  const switched = qb
    .update(workspaces)
    .set({ database: to === DIRECTORY ? null : to })
    .where(and(eq(workspaces.id, workspaceId), isOn));
  await advance(env, move, { stage: "switching" }, switched);
}

/** Unlocks the target, once the gates of all keys look up the workspace there. */
async function openTarget(env: Env, move: Move): Promise<void> {
  const { workspaceId, from, to } = move;
  const found = listLiveKeys(openDatabase(env, DIRECTORY), workspaceId, Date.now());
  const keys = await inTime(DIRECTORY, found, TIMEOUT_MS);
  const invalidated = Promise.all(keys.map((key) => invalidateKey(env, key)));
  await inTime("the gate of a key", invalidated, TIMEOUT_MS);
  if (from !== DIRECTORY)
    await commitIn(env, from, {
      left: qb.update(workspaces).set({ database: to }).where(isLockedBy(move)),
    });
  await release(env, to, move);
  await advance(env, move, { stage: "cleanup" });
}

/**
 * Unlocks the workspace in the database where it lives, and wakes its subscriptions. Delayed messages in the queue name
 * the previous database, so they count as lost. Subscriptions whose deliveries are due later are therefore also woken.
 * Their dispatch finds nothing due, and sends a new delayed message.
 */
async function release(env: Env, database: string, lock: LockedBy): Promise<void> {
  const { waiting } = await commitIn(env, database, {
    unlocked: qb.update(workspaces).set({ writeLock: null, moveId: null }).where(isLockedBy(lock)),
    unnoted: qb
      .update(subscriptions)
      .set({ nextMessageAt: 0 })
      .where(
        and(eq(subscriptions.workspaceId, lock.workspaceId), gt(subscriptions.nextMessageAt, 0)),
      ),
    waiting: selectWakeUps(lock.workspaceId, Date.now()),
  });
  await sendWakeUps(env, database, waiting);
}

/**
 * Cancels a move, unless the directory points to the target. The scheduled job deletes the rows in the target.
 *
 * @returns whether the move was cancelled.
 */
export async function cancel(env: Env, move: Move): Promise<boolean> {
  const { cancelled } = await commitIn(env, DIRECTORY, {
    cancelled: qb
      .delete(moves)
      .where(and(eq(moves.id, move.id), inArray(moves.stage, ["draining", "copying"])))
      .returning({ id: moves.id }),
  });
  if (cancelled.length > 0) logStage(move, "cancelled");
  await releaseLocks(env, move.from, move, () => false);
  return cancelled.length > 0;
}

/**
 * Releases the lock of a move in a database, once the move is over. Unlocks the workspace if it lives there; otherwise,
 * deletes its rows there.
 */
export async function releaseLocks(
  env: Env,
  database: string,
  lock: LockedBy,
  hasMore: () => boolean,
): Promise<void> {
  const { move, home } = await findMove(env, lock.workspaceId);
  if (move?.id === lock.id) return;
  if (home === database) return release(env, database, lock);
  await commitIn(env, database, {
    locked: qb
      .update(workspaces)
      .set({ writeLock: "locked", database: home })
      .where(isLockedBy(lock)),
  });
  const erased = () =>
    commitIn(env, database, { isDone: eraseLeftBehind(lock.workspaceId, lock.id) });
  while (!(await erased()).isDone && hasMore());
}
