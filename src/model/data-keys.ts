import { type Column, type Placeholder, type SQL, sql } from "drizzle-orm";
import { createDataKey, knownDataKey, openDataKeyIfAny } from "../contract/personal-data.ts";
import { update } from "../db/builder.ts";
import { commit, type Database, inOrder } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { findWorkspaces } from "./workspaces.ts";

/** SQL expression: the data key of a workspace, encrypted; null if it has none. */
export function dataKeyOf(workspaceId: Column | Placeholder): SQL<string | null> {
  return sql`(SELECT ${workspaces.dataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

/**
 * The data keys of workspaces, to encrypt with; those that have none yet get one.
 *
 * @param keys `WEBHOOK_ENCRYPTION_KEYS`.
 * @param stored what is stored of those that `knownDataKey` does not know; null for those that have none.
 * @returns by workspace id; a key that cannot be decrypted rejects.
 */
export async function ensureDataKeys(
  db: Database,
  keys: string,
  workspaceIds: string[],
  stored: Map<string, string | null>,
): Promise<Map<string, Promise<CryptoKey>>> {
  const ids = [...new Set(workspaceIds)];
  const without = ids.filter((id) => !knownDataKey(id) && stored.get(id) === null);
  const made = without.length > 0 ? await insertDataKeys(db, keys, without) : [];
  const sealed = new Map([...stored, ...made.map(({ id, dataKey }) => [id, dataKey] as const)]);
  const found = ids.map((id) => {
    const key = knownDataKey(id) ?? openDataKeyIfAny(keys, id, sealed.get(id) ?? null);
    return [id, key] as const;
  });
  return new Map(found.filter((one): one is [string, Promise<CryptoKey>] => one[1] !== null));
}

/** Stores data keys for workspaces without one. @returns those that are stored afterwards. */
async function insertDataKeys(db: Database, keys: string, ids: string[]) {
  const made = await Promise.all(
    ids.map(async (id) => ({ id, dataKey: await createDataKey(keys, id) })),
  );
  const statements = inOrder([
    update(workspaces)
      .set({ dataKey: sql`made.value->>'dataKey'` })
      .from(sql`json_each(${JSON.stringify(made)}) AS made`)
      // Another isolate may have been faster.
      .where(sql`${workspaces.id} = made.value->>'id' AND ${workspaces.dataKey} IS NULL`),
    findWorkspaces(ids),
  ]);
  const [, stored] = await commit(db, statements);
  return stored;
}
