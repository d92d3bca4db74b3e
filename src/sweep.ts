import { commit, type Database } from "./db/client.ts";
import { deleteCommits } from "./db/commit-once.ts";
import { databaseNames, hasOneDatabase, openDirectory } from "./db/databases.ts";
import { findPosition, updatePosition } from "./db/sweep-positions.ts";
import { findHealth, SWEPT } from "./health.ts";
import { log, logError } from "./log.ts";
import { cleanUpAutomations } from "./records/removals.ts";
import { timeBudget } from "./timing.ts";
import { findOverdue, wake } from "./webhooks/dispatch/wake.ts";
import { sendNotices } from "./webhooks/notices/notify.ts";
import { takeSteps } from "./webhooks/redelivery/ranges.ts";
import { deleteEndedSecrets } from "./webhooks/secrets.ts";
import { forgetAuditEntries } from "./workspaces/audit-trail.ts";
import { insertSize } from "./workspaces/database-sizes.ts";
import { forgetErasedLeads } from "./workspaces/lifecycle/erase-leads.ts";
import { deleteExpired, parseRetention } from "./workspaces/lifecycle/retention.ts";
import { parseEventsMaxBytes, trimEvents } from "./workspaces/lifecycle/trimming.ts";
import { listMoves } from "./workspaces/moves.ts";
import { continueMove } from "./workspaces/moving/move.ts";
import { type Placement, placementIn } from "./workspaces/placement.ts";

/** How long a sweep may spend on deleting. */
const SWEEP_MAX_MS = 40_000;
/** How long after its start a sweep still begins to delete runs of removed automations. */
const REMOVED_RUNS_MAX_MS = 20_000;
/** Maximum moves that one sweep continues, of the workspaces leaving one database. */
const MOVES_AT_ONCE = 100;

/**
 * The scheduled job: wakes subscriptions that the queues have forgotten, goes on with redeliveries,
 * sends notices, deletes what is past its retention, continues moves, and logs the service's health.
 * Every part is tried; a failure is thrown at the end, so that Cloudflare shows the job as failed.
 */
export async function sweep(env: Env, now: number): Promise<void> {
  const swept = await Promise.all(databaseNames(env).map((name) => sweepDatabase(env, name, now)));
  const failed = swept.reduce((sum, failures) => sum + failures, 0);
  if (failed === 0) await updatePosition(openDirectory(env), SWEPT, String(now));
  const { healthy, problems } = await findHealth(env, now);
  log("health", { healthy, problems: problems.join("; ") });
  if (failed > 0) throw new Error(`${failed} parts of the sweep failed`);
}

/** Sweeps one database. @returns how many parts failed. */
async function sweepDatabase(env: Env, database: string, now: number): Promise<number> {
  const placement = placementIn(env, database);
  const { db } = placement;
  const hasTime = timeBudget(SWEEP_MAX_MS);
  const parts = await Promise.allSettled([
    wakeOverdue(placement, env, now),
    sendNotices(db, env, now, hasTime),
    expireEvents(db, env, now, hasTime),
    takeSteps(db, now, hasTime).then((wakes) => wake(env, database, wakes)),
    deleteEndedSecrets(db, now),
    cleanUpAutomations(db, Date.now() + REMOVED_RUNS_MAX_MS),
    commit(db, deleteCommits(now)),
    commit(db, forgetErasedLeads(now)),
    commit(db, forgetAuditEntries(now)),
    insertSize(db, now),
    goOnMoving(placement, env, hasTime),
  ]);
  const failures = parts.flatMap((part) => (part.status === "rejected" ? [part.reason] : []));
  for (const failure of failures) logError("sweep_failed", failure, { database });
  return failures.length;
}

/** Continues the moves that this database takes part in, one after another. */
async function goOnMoving(
  { database, db }: Placement,
  env: Env,
  hasTime: () => boolean,
): Promise<void> {
  if (hasOneDatabase(env)) return;
  const failures: unknown[] = [];
  for (const { workspaceId } of await commit(db, listMoves(MOVES_AT_ONCE, Date.now())))
    await continueMove(env, database, workspaceId, hasTime).catch((error) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

/** Wakes overdue subscriptions, starting where the last sweep stopped. */
async function wakeOverdue({ database, db }: Placement, env: Env, now: number): Promise<void> {
  const part = "overdue";
  const { wakes, after } = await findOverdue(db, await findPosition(db, part), now);
  if (wakes.length > 0) {
    if (!(await wake(env, database, wakes)))
      throw new Error("a queue refused to wake subscriptions");
    log("sweep_woke", { subscriptions: wakes.length });
  }
  await updatePosition(db, part, after);
}

async function expireEvents(
  db: Database,
  env: Env,
  now: number,
  hasTime: () => boolean,
): Promise<void> {
  const maxBytes = parseEventsMaxBytes(env);
  const [trimming] = await Promise.allSettled([trimEvents(db, maxBytes, now, hasTime)]);
  const expired = await deleteExpired(db, parseRetention(env), now, hasTime);
  if (trimming.status === "rejected") throw trimming.reason;
  const { deleted: trimmed, overBound } = trimming.value;
  for (const { workspaceId, bytes } of overBound) log("events_over_bound", { workspaceId, bytes });
  if (trimmed + expired > 0) log("sweep_deleted", { events: trimmed + expired, trimmed });
}
