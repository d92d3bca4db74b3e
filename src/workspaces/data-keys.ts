import { and, type Column, eq, isNull, type Placeholder, type SQL, sql } from "drizzle-orm";
import type { Database } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { createDataKey, knownDataKey, openDataKey } from "../encryption/personal-data.ts";

/** SQL expression: the data key of a workspace, encrypted; null if it has none. */
export function dataKeyOf(workspaceId: Column | Placeholder): SQL<string | null> {
  return sql`(SELECT ${workspaces.dataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

/**
 * The data key of a workspace, to encrypt with. It is created if the workspace has none yet.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @param stored the stored data key, encrypted; null if there is none, undefined if the workspace is
 *   unknown or was not looked up because `knownDataKey` knows its key.
 * @returns null for an unknown workspace.
 * @throws Error if none of the keys can decrypt it.
 */
export async function ensureDataKey(
  db: Database,
  keys: string,
  workspaceId: string,
  stored: string | null | undefined,
): Promise<CryptoKey | null> {
  const isMissing = stored === null && !knownDataKey(workspaceId);
  const sealed = isMissing ? await insertDataKey(db, keys, workspaceId) : (stored ?? null);
  return openDataKey(keys, workspaceId, sealed);
}

/** Stores a data key for a workspace without one. @returns the one that is stored afterwards. */
async function insertDataKey(db: Database, keys: string, id: string): Promise<string | null> {
  const dataKey = await createDataKey(keys, id);
  const [, [row]] = await db.batch([
    // Another isolate may have been faster.
    db
      .update(workspaces)
      .set({ dataKey })
      .where(and(eq(workspaces.id, id), isNull(workspaces.dataKey))),
    db.select({ dataKey: workspaces.dataKey }).from(workspaces).where(eq(workspaces.id, id)),
  ]);
  return row?.dataKey ?? null;
}
