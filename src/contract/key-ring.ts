import { fromBase64 } from "./bytes.ts";

const KEY_BYTES = 32;

/** The keys of a secret, by their ids: the first one makes, all of them read what was made. */
export type KeyRing = Map<string, Uint8Array<ArrayBuffer>>;

/**
 * Reads a secret that holds keys: `id:base64(32 bytes)`, comma separated.
 *
 * @param name the secret's, for the error.
 * @throws Error that says which entry is wrong, without its key.
 */
export function parseKeyRing(name: string, text: string): KeyRing {
  const ring: KeyRing = new Map();
  for (const [index, entry] of text.split(",").entries()) {
    const [, id, key] = /^\s*([A-Za-z0-9_-]+):([A-Za-z0-9+/]+=*)\s*$/.exec(entry) ?? [];
    const bytes = key ? decode(key) : null;
    // The entry by its place: what stands there for an id may be the key.
    if (!id || bytes?.length !== KEY_BYTES)
      throw new Error(`${name}: entry ${index + 1} is not id:base64 of ${KEY_BYTES} bytes`);
    if (ring.has(id)) throw new Error(`${name}: entry ${index + 1} repeats an id`);
    ring.set(id, bytes);
  }
  return ring;
}

function decode(base64: string): Uint8Array<ArrayBuffer> | null {
  try {
    return fromBase64(base64);
  } catch {
    return null;
  }
}
