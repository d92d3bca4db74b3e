import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { markMoved } from "../../scripts/restore/placements.ts";
import { advanceMove, continueMoves, settleMoves } from "../../src/moving/move.ts";
import { errorOf, Platform } from "../support/api.ts";
import { NAMES, rowsIn, tablesWith, valueIn } from "../support/databases.ts";
import { hangingBefore, type Moment } from "../support/hanging.ts";
import { keepLog } from "../support/log-lines.ts";
import {
  cleanUp,
  countsOf,
  hangMover,
  homesOf,
  leaveMoves,
  moved,
  moveUntil,
  openWithLeads,
  placementOf,
  stageOf,
  sweepMoves,
} from "../support/moves.ts";
import { useThreeDatabases } from "../support/placement.ts";

useThreeDatabases();

keepLog();

const always = () => true;

/** Transactions of each step of a move, in the database in which it is made. */
const PREPARING: Moment = ["DB_3", /insert into "workspaces"/];
const DRAINING: Moment = ["DB_2", /update "workspaces" set "write_lock"/];
const COPYING: Moment = ["DB_3", /INSERT INTO "leads"/];
const ARRIVING: Moment = ["DB_3", /^update "workspaces" set "id"/];
const POINTING: Moment = ["DB", /^update "workspaces" set "database"/];
const LEAVING: Moment = ["DB_2", /^update "workspaces" set "database"/];
const OPENING: Moment = [
  "DB_3",
  /^update "workspaces" set "write_lock" = \?, "move_id" = \? where/,
];
const STEPS = { PREPARING, DRAINING, COPYING, ARRIVING, POINTING, LEAVING, OPENING };
const steps = Object.entries(STEPS);

/** Movers of which each hangs at a step, and goes on where the one before hangs. */
async function hangMovers(
  workspaceId: string,
  steps: [step: string, Moment][],
  hasMore?: () => boolean,
) {
  const movers: [step: string, late: Awaited<ReturnType<typeof hangMover>>][] = [];
  for (const [step, moment] of steps)
    movers.push([step, await hangMover(workspaceId, moment, { hasMore })]);
  return movers;
}

describe("a mover that hangs", () => {
  test("at any step changes nothing when it wakes up after another has finished, and the workspace is back", async () => {
    const { workspaceId, ids, livesIn, record } = await openWithLeads();
    const movers = await hangMovers(workspaceId, steps);
    await moved(workspaceId, "DB_3");
    await record("in DB_3");
    await cleanUp();
    await moved(workspaceId, "DB_2");
    await cleanUp();
    await Platform.eraseLeads({ workspaceId, ids: ids.splice(0, 1) });
    for (const [step, late] of movers) {
      await late.release();
      // What it has left, if anything.
      await sweepMoves();
      const own = "SELECT database, write_lock, move_id FROM workspaces WHERE id = ?";
      const free = { database: null, write_lock: null, move_id: null };
      expect(await rowsIn("DB_2", own, workspaceId), step).toEqual([free]);
      expect(await homesOf(workspaceId), step).toEqual(["DB_2"]);
    }
    await livesIn("DB_2");
    expect(await homesOf(workspaceId)).toEqual(["DB_2"]);
  });

  test("at any step changes nothing when it wakes up after the move was cancelled, nor in the next move", async () => {
    const { workspaceId, ids, livesIn, record } = await openWithLeads();
    let isCancelled = false;
    // None takes another step, because that would be one of the next move.
    const movers = await hangMovers(workspaceId, steps.slice(0, 5), () => !isCancelled);
    await moved(workspaceId, "DB_2");
    isCancelled = true;
    await record("after it was cancelled");
    await Platform.eraseLeads({ workspaceId, ids: ids.splice(0, 1) });
    await cleanUp();
    await moveUntil(workspaceId, "copying");
    const lock = "SELECT database, write_lock, move_id FROM workspaces WHERE id = ?";
    const state = async () => [
      await stageOf(workspaceId),
      await placementOf(workspaceId),
      await rowsIn("DB_2", lock, workspaceId),
      await rowsIn("DB_3", lock, workspaceId),
      await countsOf(workspaceId),
    ];
    const before = await state();
    for (const [step, late] of movers) {
      await late.release();
      expect(await state(), step).toEqual(before);
    }
    await moved(workspaceId, "DB_3");
    await livesIn("DB_3");
  });

  test("before its first step changes nothing when it wakes up after an empty workspace has moved", async () => {
    const { workspaceId } = await Platform.createWorkspace({ name: "Agence", database: "DB_2" });
    const late = await hangMover(workspaceId, PREPARING);
    await moved(workspaceId, "DB_3");
    const stored = () => rowsIn("DB_3", "SELECT * FROM workspaces WHERE id = ?", workspaceId);
    const before = await stored();
    await late.release();
    expect(await stored()).toEqual(before);
  });

  test("takes back no progress of another", async () => {
    const { workspaceId } = await openWithLeads();
    await moveUntil(workspaceId, "copying");
    const late = hangingBefore(["DB", /^update "moves" set "position"/]);
    const hung = advanceMove(late.env, workspaceId, "DB_3", () => false);
    await late.hung;
    for (let i = 0; i < 4; i++) await advanceMove(env, workspaceId, "DB_3", () => false);
    const progress = () => rowsIn("DB", "SELECT * FROM moves WHERE workspace_id = ?", workspaceId);
    const before = await progress();
    await late.release();
    await hung;
    expect(await progress()).toEqual(before);
    await moved(workspaceId, "DB_2");
  });

  test("beside another one at the same step changes nothing", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    const movers = [...Array(2).keys()].map(() => advanceMove(env, workspaceId, "DB_3", always));
    const done = { done: true, stage: null, copied: 0, rows: 0 };
    expect(await Promise.all(movers)).toEqual(movers.map(() => done));
    await livesIn("DB_3");
  });

  test("while it deleted what was left behind, deletes nothing of what has come back", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    await moved(workspaceId, "DB_3");
    await leaveMoves();
    const late = hangingBefore(["DB_2", /DELETE FROM "?events|delete from "events"/]);
    await continueMoves(late.env, always);
    const hung = settleMoves(late.env, "DB_2", always).catch(() => {});
    await late.hung;
    await cleanUp();
    await moved(workspaceId, "DB_2");
    await late.release();
    await hung;
    await livesIn("DB_2");
  });
});

test("a move that is cancelled while the sweep continues it is not begun again", async () => {
  const { workspaceId, livesIn } = await openWithLeads();
  await moveUntil(workspaceId, "copying");
  await leaveMoves();
  expect(await stageOf(workspaceId)).toBe("copying");
  const late = hangingBefore([
    "DB",
    /from "moves" where "moves"."workspace_id"|INSERT INTO "moves"/,
  ]);
  const hung = continueMoves(late.env, always);
  await late.hung;
  await moved(workspaceId, "DB_2");
  await late.release();
  await hung;
  expect(await stageOf(workspaceId)).toBeUndefined();
  await livesIn("DB_2");
});

test("a move to a database that still has rows of the workspace is rejected", async () => {
  const { workspaceId, livesIn } = await openWithLeads(1);
  await rowsIn("DB_3", "INSERT INTO erased_leads VALUES (?, 'lea_left', 1)", workspaceId);
  const moving = Platform.moveWorkspace({ workspaceId, database: "DB_3" });
  expect(await errorOf(moving)).toContain("the rows that this workspace left in DB_3");
  await livesIn("DB_2");
});

test("a sweep whose budget has ended continues no move", async () => {
  const { workspaceId } = await openWithLeads();
  await moveUntil(workspaceId, "copying");
  await leaveMoves();
  const progress = () => rowsIn("DB", "SELECT * FROM moves WHERE workspace_id = ?", workspaceId);
  const before = await progress();
  await continueMoves(env, () => false);
  expect(await progress()).toEqual(before);
  await moved(workspaceId, "DB_2");
});

test("a move whose target has lost what was copied can be cancelled", async () => {
  const { workspaceId, livesIn } = await openWithLeads();
  await moveUntil(workspaceId, "copying");
  for (let i = 0; i < 4; i++) await advanceMove(env, workspaceId, "DB_3", () => false);
  // As a restored database has: what it had before.
  for (const table of ["leads", "subscriptions", "workspaces"]) {
    const id = table === "workspaces" ? "id" : "workspace_id";
    await rowsIn("DB_3", `DELETE FROM ${table} WHERE ${id} = ?`, workspaceId);
  }
  const moving = advanceMove(env, workspaceId, "DB_3", always);
  expect(await errorOf(moving)).toContain("DB_3 has lost the copied rows");
  expect(await placementOf(workspaceId)).toBe("DB_2");
  await moved(workspaceId, "DB_2");
  await livesIn("DB_2");
});

test("what a restored database has of a workspace that had moved away is deleted", async () => {
  const { workspaceId, livesIn } = await openWithLeads();
  await moved(workspaceId, "DB_3");
  await rowsIn("DB", "DELETE FROM moves WHERE workspace_id = ?", workspaceId);
  const restored = "database = NULL, write_lock = NULL, move_id = NULL";
  await rowsIn("DB_2", `UPDATE workspaces SET ${restored} WHERE id = ?`, workspaceId);
  await cleanUp();
  const returning = Platform.moveWorkspace({ workspaceId, database: "DB_2" });
  expect(await errorOf(returning)).toContain("the rows that this workspace left in DB_2");
  // As `npm run restore` does.
  await rowsIn("DB_2", markMoved(workspaceId, "DB_3"));
  await cleanUp();
  expect(await homesOf(workspaceId)).toEqual(["DB_3"]);
  await moved(workspaceId, "DB_2");
  await livesIn("DB_2");
});

test("an erasure at any step of a move is rejected, and changes nothing", async () => {
  const { workspaceId, livesIn } = await openWithLeads(1);
  while (!(await advanceMove(env, workspaceId, "DB_3", () => false)).done)
    expect(await errorOf(Platform.eraseWorkspace({ workspaceId }))).toContain("it is being moved");
  await livesIn("DB_3");
});

test("what a cancelled move has copied is deleted, even while another move is on", async () => {
  const { workspaceId } = await openWithLeads();
  await moveUntil(workspaceId, "copying");
  for (let i = 0; i < 5; i++) await advanceMove(env, workspaceId, "DB_3", () => false);
  await moved(workspaceId, "DB_2");
  await advanceMove(env, workspaceId, "DB", () => false);
  await settleMoves(env, "DB_3", always);
  expect(await tablesWith("DB_3", workspaceId)).toEqual(["workspaces"]);
  await moved(workspaceId, "DB_2");
});

test("a workspace that is being erased is not moved, and one that moves is not erased", async () => {
  const { workspaceId } = await openWithLeads();
  const late = await hangMover(workspaceId, DRAINING);
  await rowsIn("DB_2", "UPDATE workspaces SET erasing = 1 WHERE id = ?", workspaceId);
  await late.release();
  expect(await errorOf(late.moving)).toContain("this workspace is being erased");
  expect(await stageOf(workspaceId)).toBeUndefined();
  await Platform.eraseWorkspace({ workspaceId });
  await cleanUp();
  for (const name of NAMES)
    expect((await tablesWith(name, workspaceId)).filter((table) => table !== "workspaces")).toEqual(
      [],
    );
  expect(await valueIn("DB", "SELECT 1 FROM workspaces WHERE id = ?", workspaceId)).toBeUndefined();
});
