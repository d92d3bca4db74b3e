import { env } from "cloudflare:workers";
import { getTableName } from "drizzle-orm";
import { expect } from "vitest";
import type { MoveStage } from "../../src/db/schema.ts";
import { advanceMove, continueMoves, settleMoves } from "../../src/moving/move.ts";
import { MOVED } from "../../src/workspaces/table-registry.ts";
import { leadReport, type openApi, setUp } from "./api.ts";
import { databaseOf, NAMES, openSubscribedIn, rowsIn, valueIn } from "./databases.ts";
import { hangingBefore, type Moment } from "./hanging.ts";
import { record as recordLeads } from "./record.ts";

/** The ids that the first page of a list shows. */
export async function idsIn(api: ReturnType<typeof openApi>, list: string): Promise<string[]> {
  const { status, body } = await api.get<{ data: { id: string }[] }>(`/v1/${list}?limit=100`);
  expect(status).toBe(200);
  return body.data.map(({ id }) => id);
}

/** A workspace in DB_2 with a subscription and leads, which count as delivered, and what to do with it. */
export async function openWithLeads(count = 3) {
  const { workspaceId, api, apiKey, webhookId } = await openSubscribedIn("DB_2");
  const leads = Array.from({ length: count }, (_, i) => leadReport(String(i)));
  const { ids } = await recordLeads(env, "recordLeads", { workspaceId, leads }, Date.now());
  const deliver =
    "UPDATE deliveries SET state = 'delivered', settled_at = ?1 WHERE workspace_id = ?2";
  await rowsIn("DB_2", deliver, Date.now(), workspaceId);
  const leadIds = async () => (await idsIn(api, "leads")).sort();
  const record = async (reference = "more") => {
    const one = { workspaceId, leads: [leadReport(reference)] };
    ids.push(...(await setUp.recordLeads(one)).ids);
    ids.sort();
  };
  /** Checks what it takes to live in a database: reads, writes, and deliveries. */
  const livesIn = async (database: string) => {
    expect(await placementOf(workspaceId)).toBe(database);
    expect(await leadIds()).toEqual(ids);
    await record("later");
    expect(await leadIds()).toEqual(ids);
    await allDelivered(workspaceId, ids.length);
  };
  ids.sort();
  return { workspaceId, api, apiKey, webhookId, ids, leadIds, record, livesIn };
}

/** The number of the workspace's rows in each database that has any. */
export async function countsOf(workspaceId: string): Promise<Record<string, number>> {
  const each = MOVED.map(
    ({ table }) => `(SELECT count(*) FROM ${getTableName(table)} WHERE workspace_id = ?1)`,
  );
  const count = `SELECT ${each.join(" + ")}`;
  const counts = NAMES.map(async (name) => [name, await valueIn<number>(name, count, workspaceId)]);
  return Object.fromEntries((await Promise.all(counts)).filter(([, n]) => n));
}

/** The databases that have rows of the workspace. */
export const homesOf = async (workspaceId: string) => Object.keys(await countsOf(workspaceId));

/** Waits until that many deliveries of a workspace were owed, and all of them made. */
export function allDelivered(workspaceId: string, count: number) {
  return expect
    .poll(() => setUp.ledger({ workspaceId }), { timeout: 20_000 })
    .toMatchObject({ created: count, delivered: count, addsUp: true });
}

/** Moves a workspace to one database after another, and deletes the rows that it leaves in between. */
export async function moved(workspaceId: string, ...databases: string[]): Promise<void> {
  for (const [i, database] of databases.entries()) {
    if (i > 0) await cleanUp();
    while (!(await setUp.moveWorkspace({ workspaceId, database })).done);
  }
}

/** A mover that hangs right before it makes a transaction. */
export async function hangMover(
  workspaceId: string,
  moment: Moment,
  { to = "DB_3", hasMore = () => true as boolean } = {},
) {
  const { env, hung, release } = hangingBefore(moment);
  const moving = advanceMove(env, workspaceId, to, hasMore);
  const ended = moving.catch(() => {});
  await hung;
  return {
    moving,
    /** Returns when it has ended. */
    release: async () => {
      await release();
      await ended;
    },
  };
}

/** The stage of a workspace's move; undefined if there is none. */
export const stageOf = (workspaceId: string) =>
  valueIn<MoveStage>("DB", "SELECT stage FROM moves WHERE workspace_id = ?", workspaceId);

/** Moves a workspace, and stops when the move enters a stage. In `copying`, writes are refused. */
export async function moveUntil(workspaceId: string, stage: MoveStage, to = "DB_3"): Promise<void> {
  for (let step = 0; (await stageOf(workspaceId)) !== stage; step++) {
    if (step === 100) throw new Error(`the move does not get to ${stage}`);
    await advanceMove(env, workspaceId, to, () => false);
  }
}

/** Makes all moves look abandoned, and reads that began before look ended. */
export async function leaveMoves(): Promise<void> {
  await databaseOf("DB").exec("UPDATE moves SET since = 0 WHERE stage = 'cleanup'");
  await databaseOf("DB").exec(`UPDATE moves SET since = since - 60000 WHERE since > 60000`);
}

/** Does what a sweep does for moves, and nothing else that a sweep does. */
export async function sweepMoves(): Promise<void> {
  await continueMoves(env, () => true);
  for (const name of NAMES) await settleMoves(env, name, () => true);
}

/** Deletes what workspaces have left behind, as if reads that began before were over. */
export async function cleanUp(): Promise<void> {
  await leaveMoves();
  await sweepMoves();
}

/** Where the directory says that a workspace lives. */
export async function placementOf(workspaceId: string): Promise<string> {
  const sql = "SELECT database FROM workspaces WHERE id = ?";
  return (await valueIn<string | null>("DB", sql, workspaceId)) ?? "DB";
}
