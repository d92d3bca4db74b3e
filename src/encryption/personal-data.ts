import { fromBase64, fromHex, type Hex, toBase64 } from "../contract/bytes.ts";
import { Recent } from "../recent.ts";
import { decrypt, encrypt, importKey, open, parseEncryptionKeys, seal } from "./seal.ts";

/*
 * The personal data of leads is stored encrypted under their workspace's data key, which is itself
 * stored encrypted under `ENCRYPTION_KEYS`. So what remains in a database's file after an
 * erasure, in its backups or in a dump is unreadable without those keys.
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
export const openedDataKeys = new Recent<CryptoKey>(KEPT_MAX);

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
 * Encrypts the personal data of a lead. It cannot be decrypted for any other lead.
 *
 * @returns hexadecimal of the IV, the ciphertext and the tag.
 */
export async function sealPersonalData(key: CryptoKey, leadId: string, data: object): Promise<Hex> {
  const box = await encrypt(key, leadId, JSON.stringify(data));
  return box.toHex() as Hex;
}

/**
 * Decrypts what `sealPersonalData` returned for the same lead.
 *
 * @throws Error for another key or lead, or if it was changed.
 */
export async function openPersonalData<Data extends object>(
  key: CryptoKey,
  leadId: string,
  sealed: string,
): Promise<Data> {
  return JSON.parse(await decrypt(key, leadId, fromHex(sealed)));
}
