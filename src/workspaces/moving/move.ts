import { z } from "@hono/zod-openapi";
import { and, eq, isNotNull, lte, sql } from "drizzle-orm";
import { InputError } from "../../contract/input-error.ts";
import { MINUTE_MS } from "../../contract/time.ts";
import { qb } from "../../db/builder.ts";
import { DIRECTORY } from "../../db/databases.ts";
import { type MoveStage, moves, workspaces } from "../../db/schema.ts";
import { logError } from "../../log.ts";
import { beingErased, findMove, type Move } from "../moves.ts";
import { ask, cancel, logStage, STEPS, settle } from "./steps.ts";

export const MoveProgress = z.object({
  done: z
    .boolean()
    .describe("the workspace lives in the requested database, and can be written to"),
  stage: z
    .string()
    .nullable()
    .describe(
      "of the move: leaving, while its posts end; copying or opening, while writes are refused; null if there is none",
    ),
  copied: z.int().describe("rows that have been copied"),
  rows: z.int().describe("rows to copy"),
});
export type MoveProgress = z.infer<typeof MoveProgress>;

const DONE: MoveProgress = { done: true, stage: null, copied: 0, rows: 0 };
const NOT_BEGUN: MoveProgress = { ...DONE, done: false };
const CANCELLABLE: MoveStage[] = ["leaving", "copying"];

/** The sweep continues a move without progress for this long: whoever began it has left... */
const LEFT_MS = 15_000;
/** ...and cancels one that cannot go on for this long, because writes are refused. */
const STUCK_MS = 5 * MINUTE_MS;
/** Maximum moves that one sweep continues, and maximum workspaces that it settles. */
const MOVES_AT_ONCE = 100;

/**
 * Moves a workspace to another database, or continues a move. Moving it to the database that it lives
 * in cancels a move, until the directory points to the other one.
 *
 * @throws InputError if the workspace is being moved elsewhere, or erased.
 */
export async function advanceMove(
  env: Env,
  workspaceId: string,
  to: string,
  hasMore: () => boolean,
): Promise<MoveProgress> {
  for (let hasBegun = false; ; ) {
    const { move, home } = await find(env, workspaceId);
    if (!move || (move.stage === "cleaning" && home === to)) {
      if (home === to) return DONE;
      // Another call has cancelled it.
      if (hasBegun) return NOT_BEGUN;
      await begin(env, workspaceId, home, to);
      hasBegun = true;
    } else if (move.stage === "cleaning") {
      throw new InputError(
        "database",
        `what this workspace left in ${move.from} is still being deleted`,
      );
    } else if (home === to && CANCELLABLE.includes(move.stage)) {
      await cancel(env, move);
    } else if (move.to !== to) {
      throw new InputError("database", `this workspace is being moved to ${move.to}`);
    } else {
      hasBegun = true;
      await STEPS[move.stage](env, move, hasMore);
    }
    if (!hasMore()) return progressOf(env, workspaceId, to);
  }
}

/** A workspace's move, and where the directory says that it lives. */
async function find(env: Env, workspaceId: string) {
  const { move, found } = await ask(env, DIRECTORY, {
    move: findMove(workspaceId),
    found: qb
      .select({ database: workspaces.database })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
  });
  return { move, home: found[0]?.database ?? DIRECTORY };
}

async function progressOf(env: Env, workspaceId: string, to: string): Promise<MoveProgress> {
  const { move, home } = await find(env, workspaceId);
  if (!move || move.stage === "cleaning") return home === to ? DONE : NOT_BEGUN;
  const { stage, copied, rows } = move;
  return { done: false, stage, copied, rows };
}

/** Begins a move, unless the workspace lives elsewhere by now. The databases hear of it from its first step. */
async function begin(env: Env, workspaceId: string, from: string, to: string): Promise<void> {
  const isOwn = eq(workspaces.id, workspaceId);
  const { found } = await ask(env, DIRECTORY, {
    begun: sql`INSERT INTO ${moves} (workspace_id, id, source, target, stage, created_at, since)
      SELECT id, ${crypto.randomUUID()}, ${from}, ${to}, 'leaving', created_at, ${Date.now()} FROM ${workspaces}
      WHERE ${and(isOwn, eq(workspaces.erasing, false))} AND coalesce(database, ${DIRECTORY}) = ${from}
      ON CONFLICT DO NOTHING`,
    found: qb.select({ erasing: workspaces.erasing }).from(workspaces).where(isOwn),
  });
  if (found[0]?.erasing) throw beingErased();
}

/**
 * Continues the moves that nobody continues, if this is the directory's database, and settles what moves
 * that are over have left in this database.
 */
export async function continueMoves(
  env: Env,
  database: string,
  hasMore: () => boolean,
): Promise<void> {
  const failures: unknown[] = [];
  const attempt = (work: Promise<void>) => work.catch((error) => failures.push(error));
  const now = Date.now();
  if (database === DIRECTORY) {
    const { left } = await ask(env, DIRECTORY, {
      left: qb
        .select()
        .from(moves)
        .where(lte(moves.since, now - LEFT_MS))
        .orderBy(moves.since)
        .limit(MOVES_AT_ONCE),
    });
    for (const move of left) await attempt(continueMove(env, move, now, hasMore));
  }
  const { held } = await ask(env, database, {
    held: qb
      .select({ workspaceId: workspaces.id, id: sql<string>`${workspaces.moveId}` })
      .from(workspaces)
      .where(isNotNull(workspaces.moveId))
      .limit(MOVES_AT_ONCE),
  });
  for (const each of held) if (hasMore()) await attempt(settle(env, database, each, hasMore));
  if (failures.length > 0) throw failures[0];
}

/** Continues a move, unless it is stuck: then, cancels it. */
async function continueMove(
  env: Env,
  { id, workspaceId, ...begun }: Move,
  now: number,
  hasMore: () => boolean,
): Promise<void> {
  try {
    while (hasMore()) {
      const { move } = await find(env, workspaceId);
      if (move?.id !== id || !(await STEPS[move.stage](env, move, hasMore))) return;
    }
  } catch (error) {
    logError("move_failed", error, { workspaceId });
    const { move } = await find(env, workspaceId);
    const isStuck = move?.id === id && move.since <= now - STUCK_MS;
    if (!isStuck || !CANCELLABLE.includes(begun.stage)) throw error;
    await cancel(env, move);
    logStage(move, "cancelled");
  }
}
