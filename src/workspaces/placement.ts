import { desc, eq, sql } from "drizzle-orm";
import { InputError } from "../contract/input.ts";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import {
  DIRECTORY,
  databaseNames,
  hasOneDatabase,
  isBound,
  openDatabase,
  openDirectory,
} from "../db/databases.ts";
import { causeOf, isReferenceMissing, TemporaryError } from "../db/errors.ts";
import { workspaces } from "../db/schema.ts";
import { logError } from "../log.ts";
import { withTimeout } from "../primitives/timing.ts";

/** Makes the error for a workspace that does not exist. */
export function unknownWorkspace(): InputError {
  return new InputError("workspaceId", "no such workspace");
}

/** Awaits a write whose rows refer to others. @throws `missing` if one of those rows does not exist. */
export async function refuseMissing<T>(
  write: Promise<T>,
  missing: Error = unknownWorkspace(),
): Promise<T> {
  return write.catch((thrown: unknown) => {
    const error = causeOf(thrown);
    throw isReferenceMissing(error) ? missing : error;
  });
}

/** Makes the error for a workspace that is being erased. */
export function beingErased(): InputError {
  return new InputError("workspaceId", "this workspace is being erased");
}

/** How long a database may take to respond before the others are used without it. */
const DATABASE_TIMEOUT_MS = 5_000;

/** The database that a workspace lives in. */
export interface Placement {
  /** The name of its binding. */
  database: string;
  db: Database;
}

/** Opens a database by its name. @throws Error if none is bound under it. */
export function placementIn(env: Env, database: string): Placement {
  return { database, db: openDatabase(env, database) };
}

/** Opens all bound databases. */
export function allPlacements(env: Env): Placement[] {
  return databaseNames(env).map((name) => placementIn(env, name));
}

const entry = prepared(
  qb
    .select({ database: workspaces.database })
    .from(workspaces)
    .where(eq(workspaces.id, sql.placeholder("id"))),
);

/** Reads the name of the database that a workspace lives in; undefined if `db` has no row for the workspace. */
export async function findDatabaseName(db: Database, workspaceId: string) {
  const [row] = await query(db, entry({ id: workspaceId }));
  return row && (row.database ?? DIRECTORY);
}

/**
 * Finds the database where a workspace lives. With only one database, nothing is read. For an unknown workspace, the
 * result is the database of the directory, where queries find nothing.
 */
export async function findPlacement(env: Env, workspaceId: string): Promise<Placement> {
  if (hasOneDatabase(env)) return placementIn(env, DIRECTORY);
  const name = await findDatabaseName(openDirectory(env), workspaceId);
  return placementIn(env, name ?? DIRECTORY);
}

/** Number of the newest workspaces that `findUnbound` reads. */
const NEWEST_EXAMINED = 1_000;

/** Finds the databases that the newest workspaces live in although wrangler.toml does not bind them. */
export async function findUnbound(env: Env, directory: Database): Promise<string[]> {
  const { database, createdAt } = workspaces;
  const newest = qb.select({ database }).from(workspaces).orderBy(desc(createdAt));
  const names = newest.limit(NEWEST_EXAMINED).as("newest");
  const found = await query(directory, qb.selectDistinct({ name: names.database }).from(names));
  return found.flatMap(({ name }) => (name === null || isBound(env, name) ? [] : [name]));
}

/** Waits for a database to respond. @throws TemporaryError if that takes too long. */
export function inTime<T>(
  database: string,
  work: Promise<T>,
  timeoutMs: number = DATABASE_TIMEOUT_MS,
): Promise<T> {
  return withTimeout(timeoutMs, work, () => {
    throw new TemporaryError(`${database} does not respond`);
  });
}

/**
 * Queries one of several databases. If it does not respond, or is not bound, logs that and returns null, so that the
 * others can still be shown.
 */
export async function queryIfReachable<T>(
  env: Env,
  database: string,
  find: (db: Database) => Promise<T>,
): Promise<T | null> {
  try {
    return await inTime(database, find(openDatabase(env, database)));
  } catch (error) {
    logError("database_unreachable", error, { database });
    return null;
  }
}
