import { type Column, eq, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { importKey, open, parseEncryptionKeys, seal } from "../encryption/seal.ts";
import { BoundedMap } from "../primitives/bounded-map.ts";
import { fromBase64, toBase64 } from "../primitives/bytes.ts";
import { unknownWorkspace } from "./placement.ts";
import { selectWorkspaces } from "./workspaces.ts";

/*
 * Envelope encryption. Each workspace has a data encryption key (its data key). It encrypts the personal data of leads,
 * the secrets and headers of subscriptions, and stored responses. The data key is itself stored encrypted under a key
 * encryption key of `ENCRYPTION_KEYS`. So rows that remain in a database file after an erasure, in a backup or in a
 * dump are unreadable without those keys.
 *
 * `openDataKey` decrypts a key that the caller has read, and `expectDataKey` throws if there is none. `loadDataKey` also
 * reads it, and `loadDataKeyToWrite` refuses a workspace that is being erased.
 */

const DATA_KEY_BYTES = 32;
/** Maximum data keys that an isolate caches. */
const KEPT_MAX = 1_000;

/** A workspace, with its data key. */
export interface WorkspaceKey {
  workspaceId: string;
  /** The encrypted data key; null in a database that the workspace has never lived in, or that a move has cleaned up. */
  sealedDataKey: string | null;
}

/**
 * Creates the data key of a workspace. The key never changes; only its encryption does.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @returns the key, encrypted.
 */
export function createDataKey(keys: string, workspaceId: string): Promise<string> {
  const bytes = crypto.getRandomValues(new Uint8Array(DATA_KEY_BYTES));
  return seal(parseEncryptionKeys(keys), workspaceId, toBase64(bytes));
}

/** The data keys that this isolate has decrypted, by workspace id. Exported for tests, which clear it. */
export const openedDataKeys = new BoundedMap<CryptoKey>(KEPT_MAX);

/**
 * Decrypts the data key of a workspace, unless this isolate has cached it.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @param sealed the encrypted data key, from `createDataKey`; null if this database has none (`WorkspaceKey`).
 * @returns null if `sealed` is null, and no key is cached.
 * @throws Error if none of the keys can decrypt it, or it is the data key of another workspace.
 */
export async function openDataKey(
  keys: string,
  workspaceId: string,
  sealed: string | null,
): Promise<CryptoKey | null> {
  const known = openedDataKeys.get(workspaceId);
  if (known || sealed === null) return known ?? null;
  const bytes = fromBase64(await open(parseEncryptionKeys(keys), workspaceId, sealed));
  const key = await importKey(bytes);
  openedDataKeys.set(workspaceId, key);
  return key;
}

/** Decrypts the data key of a workspace, like `openDataKey`. @throws Error also if this database has none. */
export async function expectDataKey(
  keys: string,
  { workspaceId, sealedDataKey }: WorkspaceKey,
): Promise<CryptoKey> {
  const key = await openDataKey(keys, workspaceId, sealedDataKey);
  if (!key) throw new Error(`${workspaceId} has no data key in this database`);
  return key;
}

/** SQL expression: the encrypted data key of a workspace; null if this database has none (`WorkspaceKey`). */
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
 * @throws Error like `expectDataKey`.
 */
export async function loadDataKey(
  db: Database,
  keys: string,
  workspaceId: string,
): Promise<CryptoKey> {
  const known = openedDataKeys.get(workspaceId);
  if (known) return known;
  const [workspace] = await query(db, selectSealedDataKey({ workspaceId }));
  return expectDataKey(keys, { workspaceId, sealedDataKey: workspace?.sealedDataKey ?? null });
}

/**
 * Returns the data key of a workspace, like `loadDataKey`, to encrypt data that is about to be written.
 *
 * @throws InputError for a workspace that is unknown or being erased, unless this isolate has cached its key; Error like
 *   `expectDataKey`.
 */
export async function loadDataKeyToWrite(
  db: Database,
  keys: string,
  workspaceId: string,
): Promise<CryptoKey> {
  const known = openedDataKeys.get(workspaceId);
  if (known) return known;
  const [workspace] = await query(db, selectWorkspaces([workspaceId]));
  if (!workspace) throw unknownWorkspace();
  return expectDataKey(keys, { workspaceId, sealedDataKey: workspace.sealedDataKey });
}
