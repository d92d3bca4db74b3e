import { BoundedMap } from "../primitives/bounded-map.ts";
import { fromBase64, fromHex, type Hex, toBase64 } from "../primitives/bytes.ts";
import { decrypt, encrypt, importKey, open, parseEncryptionKeys, seal } from "./seal.ts";

/*
 * Envelope encryption. Each workspace has a data encryption key (its data key). It encrypts the personal data of leads,
 * the secrets and headers of subscriptions, and stored responses. The data key is itself stored encrypted under a key
 * encryption key of `ENCRYPTION_KEYS`. So rows that remain in a database file after an erasure, in a backup or in a
 * dump are unreadable without those keys.
 */

const DATA_KEY_BYTES = 32;
/** Maximum data keys that an isolate caches. */
const KEPT_MAX = 1_000;

/** A workspace with its data key, encrypted; null if it has none. */
export interface WorkspaceKey {
  workspaceId: string;
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

/** Returns the data key of a workspace, if this isolate has cached it. */
export function knownDataKey(workspaceId: string): CryptoKey | undefined {
  return openedDataKeys.get(workspaceId);
}

/**
 * Decrypts the data key of a workspace, unless this isolate has cached it.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @param sealed the encrypted data key, from `createDataKey`; null if the workspace has none.
 * @returns null if the workspace has none.
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

/**
 * Decrypts the data key of a workspace that must have one.
 *
 * @throws Error if the workspace has none, because it does not live in this database any more.
 */
export async function expectDataKey(
  keys: string,
  { workspaceId, sealedDataKey }: WorkspaceKey,
): Promise<CryptoKey> {
  const key = await openDataKey(keys, workspaceId, sealedDataKey);
  // A caller that tries again finds the database where the workspace lives now.
  if (!key) throw new Error(`moving: try again: ${workspaceId} has no data key in this database`);
  return key;
}

/**
 * Encrypts data of a workspace under its data key.
 *
 * @param owner the id of the record that the data belongs to; the result cannot be decrypted for any other.
 * @returns hexadecimal of the IV, the ciphertext and the tag.
 */
export async function sealUnder(key: CryptoKey, owner: string, data: unknown): Promise<Hex> {
  const box = await encrypt(key, owner, JSON.stringify(data));
  return box.toHex() as Hex;
}

/**
 * Decrypts data that `sealUnder` has encrypted for the same owner.
 *
 * @throws Error for another key or owner, or if the data was changed.
 */
export async function openUnder<Data>(
  key: CryptoKey,
  owner: string,
  sealed: string,
): Promise<Data> {
  return JSON.parse(await decrypt(key, owner, fromHex(sealed)));
}
