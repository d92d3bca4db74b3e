import { type Column, eq, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { expectDataKey, knownDataKey, openDataKey } from "../encryption/personal-data.ts";
import { unknownWorkspace } from "./placement.ts";
import { selectWorkspaces } from "./workspaces.ts";

/** SQL expression: the encrypted data key of a workspace; null if it does not live in this database. */
export function sealedDataKeyOf(workspaceId: Column): SQL<string | null> {
  return sql`(SELECT ${workspaces.sealedDataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

const selectSealedDataKey = prepared(
  qb
    .select({ sealedDataKey: workspaces.sealedDataKey })
    .from(workspaces)
    .where(eq(workspaces.id, sql.placeholder("workspaceId"))),
);

/**
 * Returns the data key of a workspace. It is read and decrypted unless this isolate has cached it.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @returns null if the workspace does not live in this database.
 * @throws Error if the data key cannot be decrypted.
 */
export async function loadDataKey(
  db: Database,
  keys: string,
  workspaceId: string,
): Promise<CryptoKey | null> {
  const known = knownDataKey(workspaceId);
  if (known) return known;
  const [workspace] = await query(db, selectSealedDataKey({ workspaceId }));
  return openDataKey(keys, workspaceId, workspace?.sealedDataKey ?? null);
}

/**
 * Returns the data key of a workspace, like `loadDataKey`, to encrypt data that is about to be written.
 *
 * @throws InputError for a workspace that is unknown or being erased, unless this isolate has cached its key; Error if
 *   it has just moved, or its data key cannot be decrypted.
 */
export async function loadDataKeyToWrite(
  db: Database,
  keys: string,
  workspaceId: string,
): Promise<CryptoKey> {
  const known = knownDataKey(workspaceId);
  if (known) return known;
  const [workspace] = await query(db, selectWorkspaces([workspaceId]));
  if (!workspace) throw unknownWorkspace();
  return expectDataKey(keys, { workspaceId, sealedDataKey: workspace.sealedDataKey });
}
