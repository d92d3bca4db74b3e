import { eq, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import {
  DIRECTORY,
  databaseNames,
  hasOneDatabase,
  openDirectory,
  openNamed,
} from "../db/databases.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import { withTimeout } from "../timing.ts";

/** How long a database may take to answer before the others are used without it. */
const DATABASE_PATIENCE_MS = 5_000;

/** The database that a workspace lives in. */
export interface Placement {
  /** The name of its binding. */
  database: string;
  db: Database;
}

/** A database by its name. @throws Error if none is bound under it. */
export function placementIn(env: Env, database: string): Placement {
  return { database, db: openNamed(env, database) };
}

/** All databases that are bound. */
export function allPlacements(env: Env): Placement[] {
  return databaseNames(env).map((name) => placementIn(env, name));
}

const entry = prepared(
  qb
    .select({ database: workspaces.database })
    .from(workspaces)
    .where(eq(workspaces.id, sql.placeholder("id"))),
);

/**
 * Finds where a workspace lives. With one database there is nothing to look up. For an unknown
 * workspace, returns the directory's database, where queries then find nothing.
 */
export async function findPlacement(env: Env, workspaceId: string): Promise<Placement> {
  if (hasOneDatabase(env)) return placementIn(env, DIRECTORY);
  const [row] = await query(openDirectory(env), entry({ id: workspaceId }));
  return placementIn(env, row?.database ?? DIRECTORY);
}

/** A database did not answer in time. */
export class DatabaseUnreachable extends Error {}

/** Waits for a database to answer. @throws DatabaseUnreachable if that takes too long. */
export function inTime<T>(
  database: string,
  answer: Promise<T>,
  patienceMs: number = DATABASE_PATIENCE_MS,
): Promise<T> {
  return withTimeout(patienceMs, answer, () => {
    throw new DatabaseUnreachable(`${database} does not answer`);
  });
}

const owner = prepared(
  qb
    .select({ workspaceId: subscriptions.workspaceId })
    .from(subscriptions)
    .where(eq(subscriptions.id, sql.placeholder("id"))),
);

/**
 * Finds where the workspace of a subscription lives, by asking all databases concurrently for the
 * subscription, and waiting only until one has it: during a move, two do. With one database there is
 * nothing to ask. For an unknown subscription, returns the directory's database.
 *
 * @throws the error of a database that does not answer, if no other one has the subscription.
 */
export async function findPlacementOfWebhook(env: Env, webhookId: string): Promise<Placement> {
  if (hasOneDatabase(env)) return placementIn(env, DIRECTORY);
  const unknown = new Error("not in this database");
  const asked = allPlacements(env).map(async ({ database, db }) => {
    const [found] = await inTime(database, query(db, owner({ id: webhookId })));
    if (!found) throw unknown;
    return found.workspaceId;
  });
  try {
    return await findPlacement(env, await Promise.any(asked));
  } catch (error) {
    if (!(error instanceof AggregateError)) throw error;
    const unreachable = error.errors.find((each) => each !== unknown);
    if (unreachable) throw unreachable;
    return placementIn(env, DIRECTORY);
  }
}
