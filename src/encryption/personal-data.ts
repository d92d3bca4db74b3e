import { BoundedMap } from "../bounded-map.ts";
import { fromBase64, fromHex, type Hex, toBase64 } from "../contract/bytes.ts";
import { decrypt, encrypt, importKey, open, parseEncryptionKeys, seal } from "./seal.ts";

/*
 * What is secret about a workspace is stored encrypted under its data key: the personal data of leads, the
 * secrets and headers of subscriptions, and what receivers answered. The data key is itself stored encrypted
 * under `ENCRYPTION_KEYS`. So what remains in a database's file after an erasure, in its backups or in a dump is
 * unreadable without those keys.
 */

const DATA_KEY_BYTES = 32;
/** Maximum number of data keys that an isolate keeps; beyond it, the oldest is forgotten. */
const KEPT_MAX = 1_000;

/**
 * Creates the data key of a workspace. It never changes; only its encryption does.
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

/** The data key of a workspace, if this isolate still knows it. */
export function knownDataKey(workspaceId: string): CryptoKey | undefined {
  return openedDataKeys.get(workspaceId);
}

/**
 * Decrypts the data key of a workspace, unless this isolate still knows it.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @param sealed as `createDataKey` returned it; null if the workspace has none.
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
 * Like `openDataKey`, for a workspace that must have one.
 *
 * @throws Error if it has none: it does not live in this database any more.
 */
export async function expectDataKey(
  keys: string,
  { workspaceId, dataKey }: { workspaceId: string; dataKey: string | null },
): Promise<CryptoKey> {
  const key = await openDataKey(keys, workspaceId, dataKey);
  // Whoever tries again finds where it lives now.
  if (!key) throw new Error(`moving: try again: ${workspaceId} has no data key in this database`);
  return key;
}

/**
 * Encrypts something of a workspace under its data key.
 *
 * @param owner what it belongs to; it cannot be decrypted for anything else.
 * @returns hexadecimal of the IV, the ciphertext and the tag.
 */
export async function sealUnder(key: CryptoKey, owner: string, data: unknown): Promise<Hex> {
  const box = await encrypt(key, owner, JSON.stringify(data));
  return box.toHex() as Hex;
}

/**
 * Decrypts what `sealUnder` returned for the same owner.
 *
 * @throws Error for another key or owner, or if it was changed.
 */
export async function openUnder<Data>(
  key: CryptoKey,
  owner: string,
  sealed: string,
): Promise<Data> {
  return JSON.parse(await decrypt(key, owner, fromHex(sealed)));
}
