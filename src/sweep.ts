import { MINUTE_MS } from "./contract/time.ts";
import { Budget, CLEANUP_MAX } from "./db/budget.ts";
import { combine, commit, query } from "./db/client.ts";
import { DIRECTORY, databaseNames, hasOneDatabase, openDirectory } from "./db/databases.ts";
import { findPosition, updatePosition } from "./db/sweep-positions.ts";
import { deleteEndedSubscriptions, noteOverflow, selectWithPending } from "./delivery/ending.ts";
import { findLate, sendWakeUps, toWakeUps } from "./delivery/wake.ts";
import { announceProblems } from "./email/announce.ts";
import { deleteOldErasedLeads } from "./lifecycle/erase-leads.ts";
import { deleteExpired, parseRetention } from "./lifecycle/retention.ts";
import { log, logError } from "./log.ts";
import { continueMoves, settleMoves } from "./moving/move.ts";
import { deleteOldAutomations } from "./records/removals.ts";
import { advanceUnended } from "./replay/replay.ts";
import { findUnended } from "./replay/replays.ts";
import { noteServiceHealth, SWEPT } from "./service-health.ts";
import { deleteOldAuditEntries } from "./workspaces/audit-trail.ts";
import { type Placement, placementIn } from "./workspaces/placement.ts";

/** How long a run may take before its jobs stop where they are. */
const SWEEP_MAX_MS = 40_000;
/** Maximum databases of one run. If there are more, they take turns. */
const DATABASES_AT_ONCE = 4;
/** Maximum statements of a run for its long jobs, in all databases together. */
const LONG_JOBS_STATEMENTS = 520;
/** Maximum statements of a run for moves. The remaining ones are for the short jobs. */
const MOVES_STATEMENTS = 200;
/** Maximum times that a run deletes `CLEANUP_MAX` deleted subscriptions, in each database. */
const ENDED_PASSES = 5;

/**
 * The context of a job: a database and a budget. That of a long job is its own, so that none uses up the statements of
 * another. The next run continues a job that does not finish.
 */
interface JobContext extends Placement {
  /** The bindings, whose statements are spent from the budget. */
  env: Env;
  budget: Budget;
  now: number;
  /** The time within which each database has a turn. */
  turnMs: number;
}
type Job = (context: JobContext) => Promise<unknown>;

/** The jobs that continue while their budget lasts, in each database. */
const LONG_JOBS: Job[] = [announceNews, deleteExpiredEvents, limitPending, continueReplays];
/** The jobs that take some twenty statements together, in each database. */
const SHORT_JOBS: Job[] = [wakeLate, deleteEnded, deleteOld];

/**
 * The scheduled job (the sweep), which runs once a minute. It wakes subscriptions whose messages the queues have lost,
 * announces problems to administrators, deletes data past its retention, continues moves, and logs the health of the
 * service. A job that fails does not stop the others. The sweep then throws at its end, so that Cloudflare shows it as
 * failed.
 */
export async function sweep(env: Env, now: number): Promise<void> {
  const whole = new Budget(SWEEP_MAX_MS);
  const databases = databasesOf(env, now);
  const share = Math.floor(LONG_JOBS_STATEMENTS / LONG_JOBS.length / databases.length);
  const turnMs = Math.ceil(databaseNames(env).length / DATABASES_AT_ONCE) * MINUTE_MS;
  let failed = 0;

  async function run(job: Job, database: string, budget: Budget): Promise<void> {
    try {
      const own = budget.meter(env);
      await job({ ...placementIn(own, database), env: own, budget, now, turnMs });
    } catch (error) {
      failed++;
      logError("sweep_failed", error, { database });
    }
  }

  /** Runs the jobs of moves one after the other, because each may take all statements that are left. */
  async function runMoves(): Promise<void> {
    if (hasOneDatabase(env)) return;
    const budget = whole.share(MOVES_STATEMENTS);
    await run(resumeMoves, DIRECTORY, budget);
    for (const database of databases) await run(settleMoved, database, budget);
  }

  const running = [runMoves()];
  for (const database of databases) {
    for (const job of LONG_JOBS) running.push(run(job, database, whole.share(share)));
    for (const job of SHORT_JOBS) running.push(run(job, database, whole));
  }
  await Promise.all(running);

  const metered = whole.meter(env);
  if (failed === 0) await updatePosition(openDirectory(metered), SWEPT, String(now));
  const { healthy, problems } = await noteServiceHealth(metered, now);
  log("health", { healthy, problems: problems.join("; ") });
  if (failed > 0) throw new Error(`${failed} jobs of the sweep failed`);
}

/** Returns the databases of this run. The next run, a minute later, continues behind them. */
function databasesOf(env: Env, now: number): string[] {
  const names = databaseNames(env);
  const first = (Math.floor(now / MINUTE_MS) * DATABASES_AT_ONCE) % names.length;
  return [...names.slice(first), ...names.slice(0, first)].slice(0, DATABASES_AT_ONCE);
}

async function announceNews({ db, env, now, budget }: JobContext): Promise<void> {
  await announceProblems(db, env, now, () => budget.hasMore());
}

async function deleteExpiredEvents({ db, env, now, turnMs, budget }: JobContext): Promise<void> {
  const events = await deleteExpired(db, parseRetention(env), now, () => budget.hasMore(), turnMs);
  if (events > 0) log("sweep_deleted", { events });
}

/** Deletes the rows of deleted subscriptions, of which a key can make some 300 a minute. */
async function deleteEnded({ db, now }: JobContext): Promise<void> {
  for (let pass = 1; pass <= ENDED_PASSES; pass++)
    if ((await commit(db, deleteEndedSubscriptions(now))) < CLEANUP_MAX) return;
}

/** Finds subscriptions with too many pending deliveries, from where the last run stopped. Their dispatch ends them. */
async function limitPending({ database, db, env, now, budget }: JobContext): Promise<void> {
  const part = "pending";
  let position = await findPosition(db, part);
  do {
    const found = await query(db, selectWithPending(position));
    const over = found.filter(({ isOver }) => isOver);
    if (over.length > 0) {
      await commit(
        db,
        combine(over.map(({ subscriptionId }) => noteOverflow(subscriptionId, now))),
      );
      await sendWakeUps(env, database, toWakeUps(over));
    }
    position = found.at(-1)?.subscriptionId ?? "";
  } while (position !== "" && budget.hasMore());
  await updatePosition(db, part, position);
}

/** How long a replay waits for its caller before the scheduled job continues it. */
const CALLER_GONE_MS = MINUTE_MS / 2;

/** Continues the replays whose callers have gone, a part of each, and ends those that are done. */
async function continueReplays({ database, db, env, now, budget }: JobContext): Promise<void> {
  for (const replay of await findUnended(db, now - CALLER_GONE_MS)) {
    if (!budget.hasMore()) return;
    const queue = await advanceUnended(db, replay, now, () => budget.hasMore());
    const { subscriptionId } = replay;
    if (queue) await sendWakeUps(env, database, [{ subscriptionId, queue }]);
  }
}

/** Sends wake-up messages for subscriptions with late deliveries, from where the last run stopped. */
async function wakeLate({ database, db, env, now }: JobContext): Promise<void> {
  const part = "late";
  // No attempt leaves out its subscription, because a wrong clock may have dated it ahead.
  const position = await findPosition(db, part);
  const { wakeUps, after } = await findLate(db, position, now, Number.MAX_SAFE_INTEGER);
  if (wakeUps.length > 0) {
    if (!(await sendWakeUps(env, database, wakeUps)))
      throw new Error("a queue did not accept wake-up messages");
    log("sweep_requeued", { subscriptions: wakeUps.length });
  }
  await updatePosition(db, part, after);
}

/** Deletes rows that are stored for a limited time. */
async function deleteOld({ db, now }: JobContext): Promise<void> {
  await commit(db, deleteOldErasedLeads(now));
  await commit(db, deleteOldAutomations(now));
  await commit(db, deleteOldAuditEntries(now));
}

async function resumeMoves({ env, budget }: JobContext): Promise<void> {
  await continueMoves(env, () => budget.hasMore());
}

async function settleMoved({ env, database, budget }: JobContext): Promise<void> {
  await settleMoves(env, database, () => budget.hasMore());
}
