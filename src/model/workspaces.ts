import { and, eq, isNull, sql } from "drizzle-orm";
import { GATES_TOLD_MAX, STANDING_MAX_AGE_MS } from "../contract/limits.ts";
import {
  commit,
  type Database,
  inOrder,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
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

/** A key as those see it who tell its gate of a change. */
export interface GatedKey {
  keyHash: string;
  /** Null for a key that was never used: it has no gate, and must not get one before its first use. */
  lastUsedAt: number | null;
}

const GATED_KEY = { keyHash: apiKeys.keyHash, lastUsedAt: apiKeys.lastUsedAt };

/** Revokes a key for good and gives it; nothing when there is no such key. */
export function revokeKey(db: Database, id: string, now: number): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .update(apiKeys)
      .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${now})` })
      .where(eq(apiKeys.id, id))
      .returning(GATED_KEY),
  );
}

/** A workspace's keys that are not revoked. */
export function liveKeys(db: Database, workspaceId: string): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .select(GATED_KEY)
      .from(apiKeys)
      .where(and(eq(apiKeys.workspaceId, workspaceId), isNull(apiKeys.revokedAt))),
  );
}

/**
 * The keys of the workspaces that the subscriptions belong to, without revoked ones and those that
 * were never used: a gate stays where it is first called, which is to be near its client.
 */
export function keysOfSubscribers(subscriptionIds: string[]) {
  return rows<{ keyHash: string }>(sql`
    SELECT DISTINCT k.key_hash AS keyHash
    FROM json_each(${JSON.stringify(subscriptionIds)}) AS woken
      JOIN ${subscriptions} AS s ON s.id = woken.value
      JOIN ${apiKeys} AS k ON k.workspace_id = s.workspace_id
        AND k.revoked_at IS NULL AND k.last_used_at IS NOT NULL
    LIMIT ${GATES_TOLD_MAX}`);
}

/** What a gate must know of a key. */
export interface Standing {
  keyId: string;
  workspaceId: string;
  accessGranted: boolean;
  /** The key's own quota; null for the deployment's. */
  requestsPerWindow: number | null;
  lastUsedAt: number | null;
}

/** The standing of a key; `null` when it is unknown or revoked. */
export function findStanding(db: Database, keyHash: string): Promise<Standing | null> {
  return commit(db, standingOf(keyHash));
}

/**
 * The standing of a key that is being used, and that it is: in one transaction, so that whoever changes
 * the key or its workspace either comes first, and is seen here, or finds the key used, and tells its
 * gate.
 */
export async function useKey(db: Database, keyHash: string, now: number): Promise<Standing | null> {
  const noted = write(sql`
    UPDATE ${apiKeys} SET last_used_at = ${now}
    WHERE key_hash = ${keyHash} AND revoked_at IS NULL
      AND coalesce(last_used_at, 0) < ${now - STANDING_MAX_AGE_MS}`);
  const [, standing] = await commit(db, inOrder([noted, standingOf(keyHash)]));
  return standing;
}

function standingOf(keyHash: string): Statements<Standing | null> {
  const found = rows<Omit<Standing, "accessGranted"> & { accessGranted: number }>(sql`
    SELECT k.id AS keyId, w.id AS workspaceId, w.access_granted AS accessGranted,
      k.requests_per_window AS requestsPerWindow, k.last_used_at AS lastUsedAt
    FROM ${apiKeys} AS k JOIN ${workspaces} AS w ON w.id = k.workspace_id
    WHERE k.key_hash = ${keyHash} AND k.revoked_at IS NULL`);
  return readAs(found, ([row]) =>
    row ? { ...row, accessGranted: row.accessGranted === 1 } : null,
  );
}
