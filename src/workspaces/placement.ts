import { and, eq, isNull, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Database, openDatabase, prepared, query } from "../db/client.ts";
import {
  bindingOf,
  DIRECTORY,
  databaseNames,
  hasOneDatabase,
  openDirectory,
  openNamed,
} from "../db/databases.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import { MovingSession } from "../db/session.ts";
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

/** A session for writes to a workspace's database, which follows the workspace when it moves. */
export function openMovingSession(
  env: Env,
  { database }: Pick<Placement, "database">,
  find: () => Promise<Placement>,
): MovingSession {
  const named = (name: string) => ({ database: name, binding: bindingOf(env, name) });
  return new MovingSession(named(database), async () => named((await find()).database));
}

/**
 * Opens the database that a workspace lives in, for writes. If the workspace moves, they wait and then
 * go to its new database, and `database` changes accordingly.
 *
 * @param find finds where the workspace lives.
 */
export async function openToWrite(env: Env, find: () => Promise<Placement>): Promise<Placement> {
  const placement = await find();
  if (hasOneDatabase(env)) return placement;
  const session = openMovingSession(env, placement, find);
  return {
    get database() {
      return session.database;
    },
    db: openDatabase(session),
  };
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

const subscription = prepared(
  qb
    .select({ id: subscriptions.id })
    .from(subscriptions)
    // While its workspace moves, both databases have the row.
    .innerJoin(
      workspaces,
      and(eq(workspaces.id, subscriptions.workspaceId), isNull(workspaces.database)),
    )
    .where(eq(subscriptions.id, sql.placeholder("id"))),
);

/**
 * Finds the database that has a subscription, by asking all of them concurrently and waiting only
 * until one has it. With one database there is nothing to ask. For an unknown subscription, returns
 * the directory's database.
 *
 * @throws the error of a database that does not answer, if no other one has the subscription.
 */
export async function findPlacementOfWebhook(env: Env, webhookId: string): Promise<Placement> {
  if (hasOneDatabase(env)) return placementIn(env, DIRECTORY);
  const unknown = new Error("not in this database");
  const asked = allPlacements(env).map(async (placement) => {
    const asking = query(placement.db, subscription({ id: webhookId }));
    const found = await inTime(placement.database, asking);
    if (found.length === 0) throw unknown;
    return placement;
  });
  try {
    return await Promise.any(asked);
  } catch (error) {
    const unreachable = (error as AggregateError).errors.find((each) => each !== unknown);
    if (unreachable) throw unreachable;
    return placementIn(env, DIRECTORY);
  }
}
