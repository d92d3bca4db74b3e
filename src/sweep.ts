import { MINUTE_MS } from "./contract/time.ts";
import { Budget } from "./db/budget.ts";
import { commit } from "./db/client.ts";
import { DIRECTORY, databaseNames, hasOneDatabase, openDirectory } from "./db/databases.ts";
import { findPosition, updatePosition } from "./db/sweep-positions.ts";
import { deleteEndedSubscriptions, exhaustOverdue } from "./delivery/endings.ts";
import { findOverdue, wake } from "./delivery/wake.ts";
import { announce } from "./email/announce.ts";
import { deleteOldCounts } from "./history/counts.ts";
import { log, logError } from "./log.ts";
import { cleanUpAutomations } from "./records/removals.ts";
import { noteServiceHealth, SWEPT } from "./service-health.ts";
import { forgetAuditEntries } from "./workspaces/audit-trail.ts";
import { insertSize } from "./workspaces/database-sizes.ts";
import { forgetErasedLeads } from "./workspaces/lifecycle/erase-leads.ts";
import { deleteExpired, parseRetention } from "./workspaces/lifecycle/retention.ts";
import { continueMoves, settleMoves } from "./workspaces/moving/move.ts";
import { type Placement, placementIn } from "./workspaces/placement.ts";

/** How long a sweep may take before its parts stop where they are. */
const SWEEP_MAX_MS = 40_000;
/** Databases per sweep; if there are more, they take turns. */
const DATABASES_AT_ONCE = 4;
/** Statements of a sweep for the parts that take as many as they are given, in all databases... */
const LOOPS_STATEMENTS = 600;
/** ...and for moves. The rest is for the parts that take a few, and for what has begun. */
const MOVES_STATEMENTS = 250;

/**
 * What a part of the sweep gets: a database, and a budget of its own, so that no part can use up what
 * another needs. What it does not finish, the next sweep continues.
 */
interface Part extends Placement {
  /** Its statements are spent from the budget. */
  env: Env;
  budget: Budget;
  now: number;
}

/**
 * The scheduled job: wakes subscriptions that the queues have forgotten, tells administrators what they should know, deletes what is past its retention, continues moves, and logs the service's health.
 * Every part is tried; a failure is thrown at the end, so that Cloudflare shows the job as failed.
 */
export async function sweep(env: Env, now: number): Promise<void> {
  const whole = new Budget(SWEEP_MAX_MS);
  const metered = whole.meter(env);
  const databases = databasesOf(env, now);
  const loops = [announceFacts, expireEvents, deleteRemoved];
  const others = [wakeOverdue, exhaust, forget, measure];
  const share = Math.floor(LOOPS_STATEMENTS / loops.length / databases.length);
  const moves = whole.share(MOVES_STATEMENTS);
  const moving = hasOneDatabase(env)
    ? []
    : [
        [resumeMoves, DIRECTORY] as const,
        ...databases.map((database) => [settleMoved, database] as const),
      ];

  /** Does a part in a database. @returns how many failed. */
  async function failuresOf(
    part: (context: Part) => Promise<unknown>,
    database: string,
    budget: Budget,
  ): Promise<number> {
    try {
      const own = budget.meter(env);
      await part({ ...placementIn(own, database), env: own, budget, now });
      return 0;
    } catch (error) {
      logError("sweep_failed", error, { database });
      return 1;
    }
  }
  const failures = await Promise.all([
    ...databases.flatMap((database) =>
      [...loops, ...others].map((part) => failuresOf(part, database, whole.share(share))),
    ),
    // In turn, because each takes as many as are left.
    moving.reduce(
      async (sum, [part, database]) => (await sum) + (await failuresOf(part, database, moves)),
      Promise.resolve(0),
    ),
  ]);
  const failed = failures.reduce((sum, failures) => sum + failures, 0);
  if (failed === 0) await updatePosition(openDirectory(metered), SWEPT, String(now));
  const { healthy, problems } = await noteServiceHealth(metered, now);
  log("health", { healthy, problems: problems.join("; ") });
  if (failed > 0) throw new Error(`${failed} parts of the sweep failed`);
}

/** The databases whose turn it is, each minute from another one on. */
function databasesOf(env: Env, now: number): string[] {
  const names = databaseNames(env);
  const first = Math.floor(now / MINUTE_MS) % names.length;
  return [...names.slice(first), ...names.slice(0, first)].slice(0, DATABASES_AT_ONCE);
}

const announceFacts = ({ db, env, now, budget }: Part) =>
  announce(db, env, now, () => budget.hasMore());

const deleteRemoved = ({ db, budget }: Part) => cleanUpAutomations(db, () => budget.hasMore());

const exhaust = ({ db, now }: Part) => commit(db, exhaustOverdue({ now }));

/** Deletes what is kept for a while, and what was left behind. */
async function forget({ db, now }: Part): Promise<void> {
  await commit(db, forgetErasedLeads(now));
  await commit(db, forgetAuditEntries(now));
  await commit(db, deleteOldCounts(now));
  await commit(db, deleteEndedSubscriptions({}));
}

const measure = ({ db, now }: Part) => insertSize(db, now);

const resumeMoves = ({ env, budget }: Part) => continueMoves(env, () => budget.hasMore());

const settleMoved = ({ env, database, budget }: Part) =>
  settleMoves(env, database, () => budget.hasMore());

/** Wakes overdue subscriptions, starting where the last sweep stopped. */
async function wakeOverdue({ database, db, env, now }: Part): Promise<void> {
  const part = "overdue";
  const { wakes, after } = await findOverdue(db, await findPosition(db, part), now, true);
  if (wakes.length > 0) {
    if (!(await wake(env, database, wakes)))
      throw new Error("a queue refused to wake subscriptions");
    log("sweep_woke", { subscriptions: wakes.length });
  }
  await updatePosition(db, part, after);
}

async function expireEvents({ db, env, now, budget }: Part): Promise<void> {
  const events = await deleteExpired(db, parseRetention(env), now, () => budget.hasMore());
  if (events > 0) log("sweep_deleted", { events });
}
