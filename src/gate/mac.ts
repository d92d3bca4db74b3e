import { parseKeyRing } from "../contract/key-ring.ts";

type Keys = [CryptoKey, ...CryptoKey[]];

const encoder = new TextEncoder();

/** The keys of the secret that was read last: each request needs them. */
let imported: { secret: string; keys: Promise<Keys> } | undefined;

/**
 * The HMAC-SHA256 of `text` under the first key of a secret.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`.
 */
export async function mac(secret: string, text: string): Promise<DataView> {
  const [first] = await importKeys(secret);
  return sign(first, text);
}

/** The HMAC-SHA256 of `text` under each key of the secret. */
export async function macs(secret: string, text: string): Promise<DataView[]> {
  const keys = await importKeys(secret);
  return Promise.all(keys.map((key) => sign(key, text)));
}

function importKeys(secret: string): Promise<Keys> {
  if (imported?.secret !== secret) imported = { secret, keys: readKeys(secret) };
  return imported.keys;
}

async function readKeys(secret: string): Promise<Keys> {
  const ring = parseKeyRing("API_KEY_CHECKSUM_KEYS", secret);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const keys = [...ring.values()].map((bytes) =>
    crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]),
  );
  // A ring that was read has an entry.
  return (await Promise.all(keys)) as Keys;
}

async function sign(key: CryptoKey, text: string): Promise<DataView> {
  return new DataView(await crypto.subtle.sign("HMAC", key, encoder.encode(text)));
}
