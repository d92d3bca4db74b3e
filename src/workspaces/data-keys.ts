import { type Column, eq, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { expectDataKey, knownDataKey } from "../encryption/personal-data.ts";
import { unknownWorkspace } from "./moves.ts";
import { findWorkspaces } from "./workspaces.ts";

/** SQL expression: the encrypted data key of a workspace; null if it does not live in this database. */
export function dataKeyOf(workspaceId: Column): SQL<string | null> {
  return sql`(SELECT ${workspaces.dataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

/** Reads the encrypted data key of a workspace; null if the workspace does not live in this database. */
export async function findSealedDataKey(db: Database, workspaceId: string): Promise<string | null> {
  const [workspace] = await query(db, sealedDataKey({ workspaceId }));
  return workspace?.dataKey ?? null;
}

const sealedDataKey = prepared(
  qb
    .select({ dataKey: workspaces.dataKey })
    .from(workspaces)
    .where(eq(workspaces.id, sql.placeholder("workspaceId"))),
);

/**
 * Returns the data key of a workspace. It is read and decrypted unless this isolate has cached it.
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
