import { mac, macs } from "../encryption/key-ring.ts";
import { isEqual, toHex } from "../primitives/bytes.ts";

const PREFIX = "key_live_";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_LENGTH = 26;
const CHECKSUM_LENGTH = 6;
const encoder = new TextEncoder();
const SHAPE = new RegExp(`^${PREFIX}[0-9A-Za-z]{${RANDOM_LENGTH + CHECKSUM_LENGTH}}$`);

/**
 * Generates an API key: the prefix, 26 random base62 characters, and a checksum of 6 characters that only we can
 * compute.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`; its first key computes the checksum.
 */
export async function mintApiKey(secret: string): Promise<string> {
  let key = PREFIX;
  while (key.length < PREFIX.length + RANDOM_LENGTH) {
    const [byte = 255] = crypto.getRandomValues(new Uint8Array(1));
    // Rejection sampling makes every character equally likely, because 248 is a multiple of 62.
    if (byte < 248) key += ALPHABET[byte % ALPHABET.length];
  }
  return key + toChecksum(await mac(secret, key));
}

/**
 * Whether `text` is a key that we could have issued. Any other text is rejected without a look-up, so invented keys
 * cost none.
 *
 * @param secret `API_KEY_CHECKSUM_KEYS`; any of its keys may have computed the checksum.
 */
export async function isApiKey(secret: string, text: string): Promise<boolean> {
  if (!SHAPE.test(text)) return false;
  const given = encoder.encode(text.slice(-CHECKSUM_LENGTH));
  const made = await macs(secret, text.slice(0, -CHECKSUM_LENGTH));
  return made.map((one) => isEqual(encoder.encode(toChecksum(one)), given)).includes(true);
}

/** Returns the SHA-256 of a key, in hexadecimal. The key itself is stored nowhere. */
export async function hashApiKey(key: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", encoder.encode(key));
  return toHex(new Uint8Array(digest));
}

/** Encodes the first 48 bits as base62, and returns the last 6 digits. */
function toChecksum(bytes: DataView): string {
  let value = bytes.getUint16(0) * 2 ** 32 + bytes.getUint32(2);
  let digits = "";
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = ALPHABET[value % ALPHABET.length] + digits;
    value = Math.floor(value / ALPHABET.length);
  }
  return digits;
}
