import { fromBase64, toBase64 } from "../contract/bytes.ts";
import { type KeyRing, parseKeyRing } from "../contract/key-ring.ts";

const IV_BYTES = 12;

/** Parses `WEBHOOK_ENCRYPTION_KEYS`: the first key encrypts, all of them decrypt. */
export function parseEncryptionKeys(text: string): KeyRing {
  return parseKeyRing("WEBHOOK_ENCRYPTION_KEYS", text);
}

/**
 * Encrypts a secret with AES-256-GCM under the ring's first key: `keyId.base64(iv, ciphertext, tag)`.
 *
 * @param owner the subscription's id; the result cannot be decrypted for any other.
 */
export async function seal(ring: KeyRing, owner: string, secret: string): Promise<string> {
  const [first] = ring;
  if (!first) throw new Error("WEBHOOK_ENCRYPTION_KEYS is empty");
  const [keyId, bytes] = first;
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const sealed = await crypto.subtle.encrypt(
    algorithm(iv, owner),
    await importKey(bytes),
    new TextEncoder().encode(secret),
  );
  return `${keyId}.${toBase64(new Uint8Array([...iv, ...new Uint8Array(sealed)]))}`;
}

/** The id of the key that encrypts. */
export function sealingKeyId(ring: KeyRing): string {
  const [keyId] = ring.keys();
  if (!keyId) throw new Error("WEBHOOK_ENCRYPTION_KEYS is empty");
  return keyId;
}

/**
 * Decrypts what `seal` returned for the same owner.
 *
 * @throws Error if its key is not in the ring, or it was sealed for another owner.
 */
export async function open(ring: KeyRing, owner: string, sealed: string): Promise<string> {
  const [keyId = "", text = ""] = sealed.split(".");
  const bytes = ring.get(keyId);
  if (!bytes) throw new Error(`no encryption key ${keyId} in WEBHOOK_ENCRYPTION_KEYS`);
  const box = fromBase64(text);
  const secret = await crypto.subtle.decrypt(
    algorithm(box.subarray(0, IV_BYTES), owner),
    await importKey(bytes),
    box.subarray(IV_BYTES),
  );
  return new TextDecoder().decode(secret);
}

function algorithm(iv: Uint8Array<ArrayBuffer>, owner: string) {
  return { name: "AES-GCM", iv, additionalData: new TextEncoder().encode(owner) };
}

function importKey(bytes: Uint8Array<ArrayBuffer>) {
  return crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
}
