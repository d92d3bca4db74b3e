import { type Column, type Placeholder, type SQL, sql } from "drizzle-orm";
import { type Database, query } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { expectDataKey, knownDataKey } from "../encryption/personal-data.ts";
import { unknownWorkspace } from "./moves.ts";
import { findWorkspaces } from "./workspaces.ts";

/** SQL expression: the data key of a workspace, encrypted; null if it does not live here. */
export function dataKeyOf(workspaceId: Column | Placeholder): SQL<string | null> {
  return sql`(SELECT ${workspaces.dataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

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
