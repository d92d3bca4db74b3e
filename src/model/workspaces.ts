import { and, eq, isNull, sql } from "drizzle-orm";
import { GATES_TOLD_MAX } from "../contract/limits.ts";
import { type Database, retrying, rows, type Statements, write } from "../db/client.ts";
import { apiKeys, subscriptions, workspaces } from "../db/schema.ts";

/** Inserts a workspace that has access to the service. */
export function insertWorkspace(
  db: Database,
  workspace: { id: string; name: string; adminEmails: string[]; createdAt: number },
) {
  return retrying(() => db.insert(workspaces).values(workspace).onConflictDoNothing());
}

/** Whether there is such a workspace. */
export async function workspaceExists(db: Database, id: string): Promise<boolean> {
  const found = await retrying(() =>
    db.select({ id: workspaces.id }).from(workspaces).where(eq(workspaces.id, id)),
  );
  return found.length > 0;
}

/** Those of the workspaces that there are. */
export function selectWorkspaces(ids: string[]) {
  return rows<{ id: string }>(
    sql`SELECT id FROM ${workspaces} WHERE id IN (SELECT value FROM json_each(${JSON.stringify(ids)}))`,
  );
}

/** Grants or denies a workspace access to the service. */
export function updateAccess(id: string, granted: boolean): Statements<number> {
  return write(sql`UPDATE ${workspaces} SET access_granted = ${granted ? 1 : 0} WHERE id = ${id}`);
}

/** Inserts an API key, known by its hash only. */
export function insertApiKey(db: Database, key: typeof apiKeys.$inferInsert) {
  return retrying(() => db.insert(apiKeys).values(key).onConflictDoNothing());
}

/** Revokes a key for good and gives its hash; nothing when there is no such key. */
export function revokeKey(db: Database, id: string, now: number) {
  return retrying(() =>
    db
      .update(apiKeys)
      .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${now})` })
      .where(eq(apiKeys.id, id))
      .returning({ keyHash: apiKeys.keyHash }),
  );
}

/** The hashes of a workspace's keys that are not revoked. */
export function liveKeyHashes(db: Database, workspaceId: string) {
  return retrying(() =>
    db
      .select({ keyHash: apiKeys.keyHash })
      .from(apiKeys)
      .where(and(eq(apiKeys.workspaceId, workspaceId), isNull(apiKeys.revokedAt))),
  );
}

/** The keys of the workspaces that the subscriptions belong to, without revoked ones. */
export function keysOfSubscribers(subscriptionIds: string[]) {
  return rows<{ keyHash: string }>(sql`
    SELECT DISTINCT k.key_hash AS keyHash
    FROM json_each(${JSON.stringify(subscriptionIds)}) AS woken
      JOIN ${subscriptions} AS s ON s.id = woken.value
      JOIN ${apiKeys} AS k ON k.workspace_id = s.workspace_id AND k.revoked_at IS NULL
    LIMIT ${GATES_TOLD_MAX}`);
}

/** What a gate must know of a key. */
export interface Standing {
  workspaceId: string;
  accessGranted: boolean;
  /** The key's own quota; null for the deployment's. */
  requestsPerWindow: number | null;
}

/** The standing of a key; `null` when it is unknown or revoked. */
export async function findStanding(db: Database, keyHash: string): Promise<Standing | null> {
  const [standing] = await retrying(() =>
    db
      .select({
        workspaceId: workspaces.id,
        accessGranted: workspaces.accessGranted,
        requestsPerWindow: apiKeys.requestsPerWindow,
      })
      .from(apiKeys)
      .innerJoin(workspaces, eq(workspaces.id, apiKeys.workspaceId))
      .where(and(eq(apiKeys.keyHash, keyHash), isNull(apiKeys.revokedAt))),
  );
  return standing ?? null;
}
