import { parseKeyRing } from "./key-ring.ts";

type Keys = [CryptoKey, ...CryptoKey[]];

const encoder = new TextEncoder();

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
