import { InputError } from "../contract/input-error.ts";
import type { Database } from "../db/client.ts";
import { databaseNames, openDirectory, openNamed } from "../db/databases.ts";
import { logError } from "../log.ts";
import { unknownWorkspace } from "../records/recording/references.ts";
import {
  allPlacements,
  findPlacement,
  inTime,
  type Placement,
  placementIn,
} from "../workspaces/placement.ts";
import { workspaceExists } from "../workspaces/workspaces.ts";

/** @throws InputError if there is no such workspace. */
export async function expectWorkspace(env: Env, workspaceId: string): Promise<void> {
  if (!(await workspaceExists(openDirectory(env), workspaceId))) throw unknownWorkspace();
}

/** Finds where a workspace lives. @throws InputError if there is no such workspace. */
export async function findKnownPlacement(env: Env, workspaceId: string): Promise<Placement> {
  await expectWorkspace(env, workspaceId);
  return findPlacement(env, workspaceId);
}

/** A database by its name. @throws InputError that lists the names if none is bound under this one. */
export function expectDatabase(env: Env, database: string): Placement {
  const names = databaseNames(env);
  if (names.includes(database)) return placementIn(env, database);
  throw new InputError(
    "database",
    `no database is bound as ${database}; there is ${names.join(", ")}`,
  );
}

/** The databases to query about one workspace, about one database, or about everything. */
export async function findPlacements(
  env: Env,
  workspaceId: string | null | undefined,
  database: string | null | undefined,
): Promise<Placement[]> {
  if (workspaceId != null) return [await findKnownPlacement(env, workspaceId)];
  return database == null ? allPlacements(env) : [expectDatabase(env, database)];
}

/**
 * Queries one of several databases. If it does not answer, or is not bound, that is logged and null
 * returned, so that the others can still be shown.
 */
export async function queryIfReachable<T>(
  env: Env,
  database: string,
  find: (db: Database) => Promise<T>,
): Promise<T | null> {
  try {
    return await inTime(database, find(openNamed(env, database)));
  } catch (error) {
    logError("database_unreachable", error, { database });
    return null;
  }
}
