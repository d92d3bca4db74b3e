import { z } from "@hono/zod-openapi";
import { and, eq, isNotNull, lte, not, sql } from "drizzle-orm";
import { InputError } from "../contract/input.ts";
import { READ_MAX_MS } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { DIRECTORY } from "../db/databases.ts";
import { moves, workspaces } from "../db/schema.ts";
import { logError } from "../log.ts";
import { cancel, commitIn, findMove, logStage, type Move, releaseLocks, STEPS } from "./steps.ts";

/*
 * Moves workspaces between databases. This file begins and continues moves; steps.ts has their steps, copying.ts the
 * copying of rows, and triggers.ts the triggers that reject writes meanwhile.
 */

export const MoveProgress = z.object({
  done: z
    .boolean()
    .describe("the workspace lives in the requested database, and can be written to"),
  stage: z
    .string()
    .nullable()
    .describe(
      "the stage of the move: draining while requests in flight end; copying or switching while writes are rejected; null if there is no move, or only its cleanup is left",
    ),
  copied: z.int().describe("rows that have been copied"),
  rows: z.int().describe("approximate number of rows to copy"),
});
export type MoveProgress = z.infer<typeof MoveProgress>;

const NO_MOVE: Omit<MoveProgress, "done"> = { stage: null, copied: 0, rows: 0 };

/** How long a move must have made no progress before the scheduled job continues it, because its caller has left. */
const ABANDONED_AFTER_MS = 15_000;
/** How long a move must have made no progress before it is cancelled, because it blocks writes. */
const STUCK_AFTER_MS = 5 * MINUTE_MS;
/** How long after a move the rows that it left are deleted. No read that finds them takes as long. */
const LEFT_BEHIND_MS = 6 * READ_MAX_MS;
/** Maximum moves that one run continues, and maximum workspaces of a database that it settles. */
const MOVES_AT_ONCE = 100;

/**
 * Moves a workspace to another database, or continues a move. Moving it to the database where it lives cancels a move,
 * unless the directory already points to the other database.
 *
 * @throws InputError if the workspace is being moved elsewhere, or erased.
 */
export async function advanceMove(
  env: Env,
  workspaceId: string,
  to: string,
  hasMore: () => boolean,
): Promise<MoveProgress> {
  const { id, database, createdAt } = workspaces;
  const home = sql`coalesce(${database}, ${DIRECTORY})`;
  await commitIn(env, DIRECTORY, {
    begun: sql`INSERT INTO ${moves} (workspace_id, id, source, target, stage, created_at, since)
      SELECT ${id}, ${crypto.randomUUID()}, ${home}, ${to}, 'draining', ${createdAt}, ${Date.now()}
      FROM ${workspaces} WHERE ${id} = ${workspaceId} AND ${home} <> ${to} ON CONFLICT DO NOTHING`,
  });
  return continueMove(env, workspaceId, to, hasMore);
}

/** Continues a move. Unlike `advanceMove`, it begins none, such as one that was cancelled. */
async function continueMove(
  env: Env,
  workspaceId: string,
  to: string,
  hasMore: () => boolean,
): Promise<MoveProgress> {
  for (let isOver = false; ; isOver = !hasMore()) {
    const { move, home } = await findMove(env, workspaceId);
    if (!move || (move.stage === "cleanup" && home === to))
      return { ...NO_MOVE, done: home === to };
    const { stage, copied, rows } = move;
    if (stage === "cleanup") {
      const reason = `the rows that this workspace left in ${move.from} are still being deleted`;
      throw new InputError("database", reason);
    }
    if (isOver) return { done: false, stage, copied, rows };
    if (move.to === to) await STEPS[stage](env, move);
    else if (home === to) await cancel(env, move);
    else throw new InputError("database", `this workspace is being moved to ${move.to}`);
  }
}

/** Continues moves that their callers have left, and deletes those that are over. */
export async function continueMoves(env: Env, hasMore: () => boolean): Promise<void> {
  const now = Date.now();
  const isCleaning = eq(moves.stage, "cleanup");
  const { over, left } = await commitIn(env, DIRECTORY, {
    over: qb
      .delete(moves)
      .where(and(isCleaning, lte(moves.since, now - LEFT_BEHIND_MS)))
      .returning(),
    left: qb
      .select()
      .from(moves)
      .where(and(not(isCleaning), lte(moves.since, now - ABANDONED_AFTER_MS)))
      .orderBy(moves.since)
      .limit(MOVES_AT_ONCE),
  });
  for (const move of over) logStage(move, "done");
  await doEach(left, hasMore, (move) => continueLeft(env, move, now, hasMore));
}

/** Releases the rows that moves have locked in a database, once these moves are over. */
export async function settleMoves(
  env: Env,
  database: string,
  hasMore: () => boolean,
): Promise<void> {
  const { locked } = await commitIn(env, database, {
    locked: qb
      .select({ workspaceId: workspaces.id, id: sql<string>`${workspaces.moveId}` })
      .from(workspaces)
      .where(isNotNull(workspaces.moveId))
      .limit(MOVES_AT_ONCE),
  });
  await doEach(locked, hasMore, (each) => releaseLocks(env, database, each, hasMore));
}

/** Does work for one item after the other, even if some fail. @throws the first error, at the end. */
async function doEach<T>(
  items: T[],
  hasMore: () => boolean,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const failures: unknown[] = [];
  for (const item of items) if (hasMore()) await work(item).catch((error) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

/** Continues a move that its caller has left, or cancels it if it is stuck. */
async function continueLeft(
  env: Env,
  move: Move,
  now: number,
  hasMore: () => boolean,
): Promise<void> {
  const { workspaceId, to, since } = move;
  try {
    await continueMove(env, workspaceId, to, hasMore);
  } catch (error) {
    logError("move_failed", error, { workspaceId });
    if (since > now - STUCK_AFTER_MS || !(await cancel(env, move))) throw error;
  }
}
