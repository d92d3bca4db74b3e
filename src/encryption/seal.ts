import { fromBase64, fromHex, type Hex, toBase64 } from "../primitives/bytes.ts";
import { type KeyRing, parseKeyRing } from "./key-ring.ts";

const IV_BYTES = 12;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Parses `ENCRYPTION_KEYS`. The first key encrypts; all of them decrypt. */
export function parseEncryptionKeys(text: string): KeyRing {
  return parseKeyRing("ENCRYPTION_KEYS", text);
}

/**
 * Encrypts a secret with AES-256-GCM under the ring's first key: `keyId.base64(iv, ciphertext, tag)`.
 *
 * @param owner the id of the record that the secret belongs to; the result cannot be decrypted for any other.
 */
export async function seal(ring: KeyRing, owner: string, secret: string): Promise<string> {
  const [first] = ring;
  if (!first) throw new Error("ENCRYPTION_KEYS is empty");
  const [keyId, bytes] = first;
  return `${keyId}.${toBase64(await encrypt(await importKey(bytes), owner, secret))}`;
}

/** Returns the id of the key that encrypts. */
export function sealingKeyId(ring: KeyRing): string {
  const [keyId] = ring.keys();
  if (!keyId) throw new Error("ENCRYPTION_KEYS is empty");
  return keyId;
}

/**
 * Decrypts a secret that `seal` has encrypted for the same owner.
 *
 * @throws Error if its key is not in the ring or was replaced, or if it was sealed for another owner.
 */
export async function open(ring: KeyRing, owner: string, sealed: string): Promise<string> {
  const [keyId = "", text = ""] = sealed.split(".");
  const bytes = ring.get(keyId);
  if (!bytes) throw new Error(`no encryption key ${keyId} in ENCRYPTION_KEYS`);
  return decrypt(await importKey(bytes), owner, fromBase64(text));
}

/**
 * Encrypts data as JSON with AES-256-GCM.
 *
 * @param key the data key of a workspace.
 * @param owner the id of the record that the data belongs to; the result cannot be decrypted for any other.
 * @returns hexadecimal of the IV, the ciphertext and the tag.
 */
export async function encryptJson(key: CryptoKey, owner: string, data: unknown): Promise<Hex> {
  const box = await encrypt(key, owner, JSON.stringify(data));
  return box.toHex() as Hex;
}

/**
 * Decrypts data that `encryptJson` has encrypted for the same owner.
 *
 * @throws Error for another key or owner, or if the data was changed.
 */
export async function decryptJson<Data>(
  key: CryptoKey,
  owner: string,
  sealed: string,
): Promise<Data> {
  return JSON.parse(await decrypt(key, owner, fromHex(sealed)));
}

/**
 * Encrypts a text with AES-256-GCM.
 *
 * @param owner the id of the record that the text belongs to; the result cannot be decrypted for any other.
 * @returns a random IV of 12 bytes, the ciphertext and the tag of 16 bytes.
 */
async function encrypt(
  key: CryptoKey,
  owner: string,
  text: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const plain = encoder.encode(text);
  const sealed = new Uint8Array(await crypto.subtle.encrypt(algorithm(iv, owner), key, plain));
  const box = new Uint8Array(IV_BYTES + sealed.length);
  box.set(iv);
  box.set(sealed, IV_BYTES);
  return box;
}

/** Decrypts a text that `encrypt` has encrypted. @throws Error for another key or owner, or if it was changed. */
async function decrypt(
  key: CryptoKey,
  owner: string,
  box: Uint8Array<ArrayBuffer>,
): Promise<string> {
  const text = await crypto.subtle.decrypt(
    algorithm(box.subarray(0, IV_BYTES), owner),
    key,
    box.subarray(IV_BYTES),
  );
  return decoder.decode(text);
}

function algorithm(iv: Uint8Array<ArrayBuffer>, owner: string) {
  return { name: "AES-GCM", iv, additionalData: encoder.encode(owner) };
}

/** Imports an AES-256-GCM key from its 32 bytes. */
export function importKey(bytes: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
}
