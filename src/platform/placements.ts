import { InputError } from "../contract/input.ts";
import { databaseNames, openDirectory } from "../db/databases.ts";
import { findOwner, unknownWebhook } from "../subscriptions/subscriptions.ts";
import {
  allPlacements,
  findDatabaseName,
  findPlacement,
  inTime,
  type Placement,
  placementIn,
  unknownWorkspace,
} from "../workspaces/placement.ts";
import type { Call } from "./operation.ts";

/** Finds the database where a workspace lives. @throws InputError if there is no such workspace. */
export async function expectWorkspace(env: Env, workspaceId: string): Promise<Placement> {
  const database = await findDatabaseName(openDirectory(env), workspaceId);
  if (database === undefined) throw unknownWorkspace();
  return placementIn(env, database);
}

/** Opens a database by its name. @throws InputError that lists the names if none is bound under this one. */
export function expectDatabase(env: Env, database: string): Placement {
  const names = databaseNames(env);
  if (names.includes(database)) return placementIn(env, database);
  throw new InputError(
    "database",
    `no database is bound as ${database}, only as ${names.join(", ")}`,
  );
}

/**
 * Finds the database where the workspace of a subscription lives, and notes the workspace for the audit trail.
 *
 * @throws InputError if there is no such subscription, or like `locateWebhook`.
 */
export async function findWebhook(call: Call, webhookId: string): Promise<Placement> {
  const found = call.placement ?? (await locateWebhook(call, webhookId));
  if (!found) throw unknownWebhook();
  return found;
}

/**
 * Looks up a subscription in all databases concurrently, and waits only until one has it. During a move, two have it.
 *
 * @returns null if there is no such subscription, or it was deleted.
 * @throws the error of a database that does not respond, if no other one has the subscription.
 */
export async function locateWebhook(
  { env, note }: Call,
  webhookId: string,
): Promise<Placement | null> {
  const unknown = new Error("not in this database");
  const lookUps = allPlacements(env).map(async ({ database, db }) => {
    const owner = await inTime(database, findOwner(db, webhookId));
    if (!owner) throw unknown;
    return owner;
  });
  try {
    const { workspaceId, deletedAt } = await Promise.any(lookUps);
    note?.(workspaceId);
    return deletedAt === null ? await findPlacement(env, workspaceId) : null;
  } catch (error) {
    if (!(error instanceof AggregateError)) throw error;
    const unreachable = error.errors.find((each) => each !== unknown);
    if (unreachable) throw unreachable;
    return null;
  }
}
