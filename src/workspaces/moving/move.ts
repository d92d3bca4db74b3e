import { z } from "@hono/zod-openapi";
import { and, eq, isNull, sql } from "drizzle-orm";
import { InputError } from "../../contract/input-error.ts";
import { qb } from "../../db/builder.ts";
import { commit, inOrder } from "../../db/client.ts";
import { openDirectory, openNamed } from "../../db/databases.ts";
import { moves, workspaces } from "../../db/schema.ts";
import { sleep } from "../../timing.ts";
import { beingErased, findMove, type Move } from "../moves.ts";
import { findPlacement, inTime } from "../placement.ts";
import { Mover } from "./mover.ts";
import { findEntry, START, voidArrival } from "./steps.ts";

export const MoveProgress = z.object({
  done: z.boolean().describe("the workspace lives in the requested database"),
  state: z
    .string()
    .nullable()
    .describe("of the move: copying, draining or closed; null if there is none"),
});
export type MoveProgress = z.infer<typeof MoveProgress>;

const RETRY_MS = 250;

/**
 * Moves a workspace to another database, or continues a move. Moving it to the database that it lives
 * in cancels a move that has not switched. If another mover owns the move, waits until it can take
 * over: that one may have died.
 *
 * @throws InputError if the workspace is being moved elsewhere, or erased.
 */
export async function moveWorkspace(
  env: Env,
  workspaceId: string,
  to: string,
  hasTime: () => boolean,
): Promise<MoveProgress> {
  for (let hasBegun = false; ; ) {
    const { database: from, db: source } = await findPlacement(env, workspaceId);
    const move = await commit(source, findMove(workspaceId));
    const goOn = (leaving: string) => continueMove(env, leaving, workspaceId, hasTime, true);
    if (!move) {
      if (from === to) return { done: true, state: null };
      // Another call has cancelled it.
      if (hasBegun) return { done: false, state: null };
      await begin(env, workspaceId, from, to);
      hasBegun = true;
      await goOn(from);
    } else if (move.state === "arrived") {
      // Its mover died before it opened the workspace.
      await goOn(move.other);
    } else if (from === to) {
      await new Mover(env, from, move).cancel();
    } else if (move.other !== to) {
      throw new InputError("database", `this workspace is being moved to ${move.other}`);
    } else {
      hasBegun = true;
      await goOn(from);
    }
    const progress = await progressOf(env, workspaceId, to);
    if (progress.done || !hasTime()) return progress;
    await sleep(RETRY_MS);
  }
}

async function progressOf(env: Env, workspaceId: string, to: string): Promise<MoveProgress> {
  const { database, db } = await findPlacement(env, workspaceId);
  const move = await commit(db, findMove(workspaceId));
  return { done: database === to && !move, state: move?.state ?? null };
}

/**
 * Begins a move at the source, unless the workspace no longer lives there. The target hears of it from
 * the mover, so a move that nobody continues leaves nothing there.
 */
async function begin(env: Env, workspaceId: string, from: string, to: string): Promise<void> {
  const entry = await inTime(to, commit(openNamed(env, to), findMove(workspaceId)));
  if (entry)
    throw new InputError("database", `what this workspace left in ${to} is still being deleted`);
  const isHere = and(eq(workspaces.id, workspaceId), isNull(workspaces.database));
  const begun = inOrder([
    // From now on, triggers note the workspace's changes.
    sql`INSERT INTO ${moves} (workspace_id, state, move_id, other, position, since)
      SELECT ${workspaceId}, 'copying', ${crypto.randomUUID()}, ${to}, ${JSON.stringify(START)}, ${Date.now()}
      FROM ${workspaces} WHERE ${isHere} AND NOT ${workspaces.erasing}
      ON CONFLICT (workspace_id) DO NOTHING`,
    qb.select({ erasing: workspaces.erasing }).from(workspaces).where(isHere),
  ]);
  const [, [workspace]] = await commit(openNamed(env, from), begun);
  if (workspace?.erasing) throw beingErased();
}

/**
 * Continues the move of a workspace that is leaving a database, or has left something behind there,
 * while there is time.
 *
 * @param isUrgent whether to continue it even if it is waiting after a failed switch.
 */
export async function continueMove(
  env: Env,
  database: string,
  workspaceId: string,
  hasTime: () => boolean,
  isUrgent = false,
): Promise<void> {
  const db = openNamed(env, database);
  const move = await commit(db, findMove(workspaceId));
  if (!move) return;
  if (move.state === "arriving" || move.state === "arrived") {
    if (!(await isCancelled(env, database, move))) return;
    await commit(db, voidArrival(move));
  }
  await new Mover(env, database, move).work(hasTime, isUrgent);
}

/**
 * Whether the move of a workspace that is arriving in a database is over at the source. It began there
 * before it did here, so it will not come back.
 */
async function isCancelled(env: Env, database: string, move: Move): Promise<boolean> {
  const source = openNamed(env, move.other);
  const original = await inTime(move.other, commit(source, findMove(move.workspaceId)));
  if (original?.moveId === move.moveId) return false;
  return (await commit(openDirectory(env), findEntry(move.workspaceId))) !== database;
}
