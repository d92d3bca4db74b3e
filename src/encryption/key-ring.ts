import { fromBase64, isEqual } from "../primitives/bytes.ts";

const KEY_BYTES = 32;
const encoder = new TextEncoder();

/** The keys of a secret, by id. The first one signs or encrypts; all of them verify or decrypt. */
export type KeyRing = Map<string, Uint8Array<ArrayBuffer>>;

/**
 * Parses a secret that holds comma-separated keys: `id:base64(32 bytes)`.
 *
 * @param name the name of the secret, for the error message.
 * @throws Error that names the invalid entry by position, without its key.
 */
export function parseKeyRing(name: string, text: string): KeyRing {
  const ring: KeyRing = new Map();
  for (const [index, entry] of text.split(",").entries()) {
    const [, id, key] = /^\s*([A-Za-z0-9_-]+):([A-Za-z0-9+/]+=*)\s*$/.exec(entry) ?? [];
    const bytes = key ? decode(key) : null;
    // The error names the position, because text that looks like an id may be part of the key.
    if (!id || bytes?.length !== KEY_BYTES)
      throw new Error(`${name}: entry ${index + 1} is not id:base64 of ${KEY_BYTES} bytes`);
    if (ring.has(id)) throw new Error(`${name}: entry ${index + 1} repeats an id`);
    ring.set(id, bytes);
  }
  return ring;
}

/**
 * Finds the id of the key that a caller presents, as `id:base64` or as its base64 alone; null if the ring does not
 * have it. Keys are compared in constant time.
 *
 * @param name the name of the secret, for the error message.
 */
export function findKeyId(name: string, secret: string, presented: string): string | null {
  const [, id, key] = /^(?:([A-Za-z0-9_-]+):)?([A-Za-z0-9+/]+=*)$/.exec(presented) ?? [];
  const bytes = key ? decode(key) : null;
  if (!bytes) return null;
  const equal = [...parseKeyRing(name, secret)].filter(([, own]) => isEqual(own, bytes));
  return equal.find(([own]) => id === undefined || id === own)?.[0] ?? null;
}

function decode(base64: string): Uint8Array<ArrayBuffer> | null {
  try {
    return fromBase64(base64);
  } catch {
    return null;
  }
}

type Keys = [CryptoKey, ...CryptoKey[]];

/** The imported keys of each secret, cached because every request needs them. */
const imported = new Map<string, { secret: string; keys: Promise<Keys> }>();

/** Computes the HMAC-SHA256 of `text` with the first key of a secret. @param secret `API_KEY_CHECKSUM_KEYS`. */
export async function mac(secret: string, text: string): Promise<DataView> {
  const [first] = await importKeys("API_KEY_CHECKSUM_KEYS", secret);
  return sign(first, text);
}

/** Computes the HMAC-SHA256 of `text` with each key of the secret. */
export async function macs(secret: string, text: string): Promise<DataView[]> {
  const keys = await importKeys("API_KEY_CHECKSUM_KEYS", secret);
  return Promise.all(keys.map((key) => sign(key, text)));
}

/**
 * Imports the HMAC-SHA256 keys of a secret, in order.
 *
 * @param name the name of the secret; only its latest value is cached.
 */
export function importKeys(name: string, secret: string): Promise<Keys> {
  const known = imported.get(name);
  if (known?.secret === secret) return known.keys;
  const keys = importRing(name, secret);
  imported.set(name, { secret, keys });
  return keys;
}

async function importRing(name: string, secret: string): Promise<Keys> {
  const ring = parseKeyRing(name, secret);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const keys = [...ring.values()].map((bytes) =>
    crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign", "verify"]),
  );
  // A parsed ring has at least one key.
  return (await Promise.all(keys)) as Keys;
}

async function sign(key: CryptoKey, text: string): Promise<DataView> {
  return new DataView(await crypto.subtle.sign("HMAC", key, encoder.encode(text)));
}
