import { fromBase64, toBase64 } from "../contract/bytes.ts";

const IV_BYTES = 12;
const KEY_BYTES = 32;

/** The encryption keys of the deployment: the first one seals, all of them open. */
export type KeyRing = Map<string, Uint8Array<ArrayBuffer>>;

/**
 * Reads `WEBHOOK_ENCRYPTION_KEYS`: `id:base64(32 bytes)`, comma separated.
 *
 * @throws Error that says which entry is wrong, without its key.
 */
export function readKeyRing(text: string): KeyRing {
  const ring: KeyRing = new Map();
  for (const [index, entry] of text.split(",").entries()) {
    const [, id, key] = /^\s*([A-Za-z0-9_-]+):([A-Za-z0-9+/]+=*)\s*$/.exec(entry) ?? [];
    const bytes = key ? decode(key) : null;
    // The entry by its place: what stands there for an id may be the key.
    if (!id || bytes?.length !== KEY_BYTES)
      throw new Error(
        `WEBHOOK_ENCRYPTION_KEYS: entry ${index + 1} is not id:base64 of ${KEY_BYTES} bytes`,
      );
    if (ring.has(id)) throw new Error(`WEBHOOK_ENCRYPTION_KEYS: entry ${index + 1} repeats an id`);
    ring.set(id, bytes);
  }
  return ring;
}

/**
 * Seals a secret with AES-256-GCM under the ring's first key: `keyId.base64(iv, ciphertext, tag)`.
 *
 * @param owner the identifier of the subscription; what is sealed for one opens for no other.
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

/** The identifier of the key that seals. */
export function sealingKeyId(ring: KeyRing): string {
  const [keyId] = ring.keys();
  if (!keyId) throw new Error("WEBHOOK_ENCRYPTION_KEYS is empty");
  return keyId;
}

/**
 * Opens what `seal` made for the same owner.
 *
 * @throws Error when its key is not in the ring, or it was not sealed for this owner.
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

function decode(base64: string): Uint8Array<ArrayBuffer> | null {
  try {
    return fromBase64(base64);
  } catch {
    return null;
  }
}

function algorithm(iv: Uint8Array<ArrayBuffer>, owner: string) {
  return { name: "AES-GCM", iv, additionalData: new TextEncoder().encode(owner) };
}

function importKey(bytes: Uint8Array<ArrayBuffer>) {
  return crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);
}
