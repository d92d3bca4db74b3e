import { and, eq, inArray, isNotNull, isNull, not, sql } from "drizzle-orm";
import { InputError } from "../../contract/input-error.ts";
import { qb } from "../../db/builder.ts";
import { commit, type Executable, type Parts, type ResultsByName } from "../../db/client.ts";
import { DIRECTORY, openNamed } from "../../db/databases.ts";
import { type MoveStage, moves, workspaces } from "../../db/schema.ts";
import { isLeased } from "../../delivery/lease.ts";
import { listDue, wake } from "../../delivery/wake.ts";
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
 * The steps of a move. Each can be repeated, by several movers at once, and after a crash: the directory
 * has the one row of the move, whose id is on the workspace's rows in the source and in the target. The
 * source is closed while its rows are copied, so all movers copy the same. Whatever a move holds in a
 * database when it is over, `settle` releases.
 */

/** How long a database, or the gates of keys, may take to answer a mover. */
const PATIENCE_MS = 10_000;
/** How long to wait for posts to end, before it is checked again. */
const LEASES_CHECKED_MS = 300;

/** A move of a workspace from one database to another, as stored in the directory. */
export type Move = typeof moves.$inferSelect;
/** A move, as the rows that it holds know it. */
type Held = Pick<Move, "id" | "workspaceId">;

/** The step of each stage. In `cleaning`, nothing is left to do but to wait. */
export const STEPS: Record<
  Exclude<MoveStage, "cleaning">,
  (env: Env, move: Move) => Promise<void>
> = { leaving: leave, copying: copy, opening: open };

/** SQL condition: the workspace's row, if it is held by this move. */
const isHeldBy = ({ id, workspaceId }: Held) =>
  and(eq(workspaces.id, workspaceId), eq(workspaces.moveId, id));

/** The hold of the workspace's row, if it is held by this move. */
const findHold = (move: Held) =>
  qb.select({ hold: workspaces.hold }).from(workspaces).where(isHeldBy(move));

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
 * Prepares the target, lets the posts in progress end while none begin, and closes the source.
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
      .set({ hold: "arriving", moveId: id })
      .where(
        and(
          isOwn,
          isNotNull(workspaces.database),
          isNull(workspaces.moveId),
          isEmpty(MOVED, workspaceId),
        ),
      ),
    found: findHold(move),
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
    found: findHold(move),
  });
  if (!source) {
    await cancel(env, move);
    throw beingErased();
  }
  if (source.hold !== "closed") return sleep(LEASES_CHECKED_MS);
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
  const isArriving = sql`EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isHeldBy(move)} AND ${workspaces.hold} = 'arriving')`;
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
    found: qb.select(MOVED_FIELDS).from(workspaces).where(isHeldBy(move)),
  });
  if (!fields) throw new Error(`${from} does not have the workspace any more`);
  const { found } = await ask(env, to, {
    arrived: qb
      .update(workspaces)
      // The directory's own row goes on pointing to the source.
      .set({ ...fields, database: to === DIRECTORY ? from : null, hold: "closed" })
      .where(and(isHeldBy(move), eq(workspaces.hold, "arriving"))),
    found: findHold(move),
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
      left: qb.update(workspaces).set({ database: to }).where(isHeldBy(move)),
    });
  await release(env, to, move);
  await advance(env, move, { stage: "cleaning" });
}

/** Opens the workspace in the database where it lives, and wakes its subscriptions. */
async function release(env: Env, database: string, held: Held): Promise<void> {
  const { due } = await ask(env, database, {
    opened: qb.update(workspaces).set({ hold: null, moveId: null }).where(isHeldBy(held)),
    due: listDue(held.workspaceId, Date.now()),
  });
  await wake(env, database, due);
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
 * Settles what a move holds in a database, once it is over: opens the workspace if it lives there, else
 * deletes what is there.
 */
export async function settle(
  env: Env,
  database: string,
  held: Held,
  hasMore: () => boolean,
): Promise<void> {
  const { move, home } = await find(env, held.workspaceId);
  if (move?.id === held.id) return;
  if (home === database) return release(env, database, held);
  await ask(env, database, {
    closed: qb.update(workspaces).set({ hold: "closed", database: home }).where(isHeldBy(held)),
  });
  const erased = () => ask(env, database, { isDone: eraseLeftBehind(held.workspaceId, held.id) });
  while (!(await erased()).isDone && hasMore());
}
