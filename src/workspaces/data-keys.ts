import { type Column, eq, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { expectDataKey, knownDataKey, openDataKey } from "../encryption/personal-data.ts";
import { unknownWorkspace } from "./moves.ts";
import { findWorkspaces } from "./workspaces.ts";

/** SQL expression: the data key of a workspace, encrypted; null if it does not live here. */
export function dataKeyOf(workspaceId: Column): SQL<string | null> {
  return sql`(SELECT ${workspaces.dataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

/**
 * The data key of a workspace, to decrypt its leads with. If this isolate knows it, nothing is looked up.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @returns null if the workspace does not live in this database.
 * @throws Error if the key cannot be decrypted.
 */
export async function readDataKey(
  db: Database,
  keys: string,
  workspaceId: string,
): Promise<CryptoKey | null> {
  const known = knownDataKey(workspaceId);
  if (known) return known;
  const [workspace] = await query(db, sealedDataKey({ workspaceId }));
  return openDataKey(keys, workspaceId, workspace?.dataKey ?? null);
}

const sealedDataKey = prepared(
  qb
    .select({ dataKey: workspaces.dataKey })
    .from(workspaces)
    .where(eq(workspaces.id, sql.placeholder("workspaceId"))),
);

/**
 * Finds the data key of a workspace. If this isolate knows it, nothing is looked up.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @throws InputError for an unknown workspace; Error if it has just moved, or its key cannot be decrypted.
 */
export async function findDataKey(
  db: Database,
  keys: string,
  workspaceId: string,
): Promise<CryptoKey> {
  const known = knownDataKey(workspaceId);
  if (known) return known;
  const [workspace] = await query(db, findWorkspaces([workspaceId]));
  if (!workspace) throw unknownWorkspace();
  return expectDataKey(keys, { workspaceId, dataKey: workspace.dataKey });
}
