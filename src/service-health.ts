import { MINUTE_MS } from "./contract/time.ts";
import type { Database } from "./db/client.ts";
import { DIRECTORY, databaseNames, openDatabase, openDirectory } from "./db/databases.ts";
import { findUnapplied } from "./db/migrations.ts";
import { findPosition, updatePosition } from "./db/sweep-positions.ts";
import { findLate } from "./delivery/wake.ts";
import { logError } from "./log.ts";
import { DATABASE_MAX_BYTES, findSize } from "./workspaces/database-figures.ts";
import { findUnbound, inTime } from "./workspaces/placement.ts";
import { findOldestWorkspace } from "./workspaces/workspaces.ts";

/*
 * To add a problem: here, and a section of five lines in `docs/runbook.md`, which `test/node/runbook.test.ts` requires.
 */

/** How long a database may take to respond. */
export const DATABASE_TIMEOUT_MS = 3_000;
/** Maximum time since the last run of the scheduled job, which runs once a minute. */
export const SWEPT_WITHIN_MS = 3 * MINUTE_MS;
/** How long a delivery may be due without a dispatch before it counts as stuck. */
export const STUCK_AFTER_MS = 10 * MINUTE_MS;
/** The share of a database's maximum size above which it counts as full. */
export const FULL_SHARE_MAX = 0.8;

/** The position, in the directory, in which the scheduled job notes when it last ran without a failure. */
export const SWEPT = "swept";
/** The position, in the directory, in which the scheduled job notes the health of the service. */
const FOUND = "health";

export interface Health {
  healthy: boolean;
  /** The problems, in one sentence each. */
  problems: string[];
}

/** Finds the problems of the service, and notes the result for `isHealthy`. The scheduled job calls it every minute. */
export async function noteServiceHealth(env: Env, now: number): Promise<Health> {
  const found = await findServiceHealth(env, now);
  const note = `${found.healthy ? "healthy" : "unhealthy"} ${now}`;
  await updatePosition(openDirectory(env), FOUND, note);
  return found;
}

/**
 * Whether the scheduled job recently found the service healthy. Reads one row, so that any number of requests is
 * cheap. In a new deployment, in which the job has not run yet, it finds the problems itself.
 */
export async function isHealthy(env: Env, now: number): Promise<boolean> {
  try {
    const reading = findPosition(openDirectory(env), FOUND);
    const [state, at] = (await inTime(DIRECTORY, reading, DATABASE_TIMEOUT_MS)).split(" ");
    if (!at) return (await findServiceHealth(env, now)).healthy;
    return state === "healthy" && now - Number(at) <= SWEPT_WITHIN_MS;
  } catch (error) {
    logError("database_unreachable", error, { database: DIRECTORY });
    return false;
  }
}

/** Finds the problems of the service. A database that does not respond is a problem, and not an error. */
export async function findServiceHealth(env: Env, now: number): Promise<Health> {
  const found = databaseNames(env).map(async (database) => {
    try {
      const problems = problemsIn(env, database, now);
      return (await inTime(database, problems, DATABASE_TIMEOUT_MS)).map(
        (one) => `${database}: ${one}`,
      );
    } catch (error) {
      logError("database_unreachable", error, { database });
      return [`${database} does not respond`];
    }
  });
  const problems = (await Promise.all(found)).flat();
  return { healthy: problems.length === 0, problems };
}

/** Finds the problems of a database. Reads a few rows for each subscription with pending deliveries. */
async function problemsIn(env: Env, database: string, now: number): Promise<string[]> {
  const db = openDatabase(env, database);
  const isDirectory = database === DIRECTORY;
  const [{ wakeUps }, sizeBytes, unapplied, sweep, unbound] = await Promise.all([
    // The scheduled job should have woken these subscriptions ten minutes ago. One that was tried since is not stuck: it works
    // off its backlog.
    findLate(db, "", now - STUCK_AFTER_MS, now - STUCK_AFTER_MS),
    findSize(db),
    findUnapplied(db),
    isDirectory ? problemOfSweep(db, now) : null,
    isDirectory ? findUnbound(env, db) : [],
  ]);
  const minutes = STUCK_AFTER_MS / MINUTE_MS;
  return [
    ...(sweep ? [sweep] : []),
    ...unapplied.map((name) => `the migration ${name} is missing`),
    ...unbound.map((name) => `workspaces live in ${name}, which is not bound`),
    ...(wakeUps.length > 0
      ? [`deliveries to ${wakeUps.length} webhooks are stuck: due for more than ${minutes} minutes`]
      : []),
    ...(sizeBytes > FULL_SHARE_MAX * DATABASE_MAX_BYTES
      ? [`${Math.floor((100 * sizeBytes) / DATABASE_MAX_BYTES)}% full`]
      : []),
  ];
}

async function problemOfSweep(db: Database, now: number): Promise<string | null> {
  const swept = Number(await findPosition(db, SWEPT));
  // A new deployment has been neither swept nor used.
  const since = swept || ((await findOldestWorkspace(db)) ?? now);
  if (now - since <= SWEPT_WITHIN_MS) return null;
  return swept === 0
    ? "the scheduled job has never run"
    : `the scheduled job last ran without a failure ${Math.floor((now - swept) / MINUTE_MS)} minutes ago`;
}
