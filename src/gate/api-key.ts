import { toHex } from "../contract/bytes.ts";

const PREFIX = "key_live_";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_LENGTH = 26;
const CHECKSUM_LENGTH = 6;
const SHAPE = new RegExp(`^${PREFIX}[0-9A-Za-z]{${RANDOM_LENGTH + CHECKSUM_LENGTH}}$`);

/** A new API key: the prefix, 26 random base62 characters and 6 of the CRC-32 of what precedes. */
export function mintApiKey(): string {
  let key = PREFIX;
  while (key.length < PREFIX.length + RANDOM_LENGTH) {
    const [byte = 255] = crypto.getRandomValues(new Uint8Array(1));
    // Multiples of 62 only, so that every character is equally likely.
    if (byte < 248) key += ALPHABET[byte % ALPHABET.length];
  }
  return key + checksum(key);
}

/** Whether `text` is a key that we could have made; what is not is refused without a look-up. */
export function isApiKey(text: string): boolean {
  return (
    SHAPE.test(text) && checksum(text.slice(0, -CHECKSUM_LENGTH)) === text.slice(-CHECKSUM_LENGTH)
  );
}

/** The SHA-256 of a key, in hexadecimal: all that is ever stored of it. */
export async function hashApiKey(key: string): Promise<string> {
  return toHex(
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key))),
  );
}

function checksum(text: string): string {
  let value = crc32(text);
  let digits = "";
  for (let i = 0; i < CHECKSUM_LENGTH; i++) {
    digits = ALPHABET[value % ALPHABET.length] + digits;
    value = Math.floor(value / ALPHABET.length);
  }
  return digits;
}

/** CRC-32 of ASCII text (ISO-HDLC: reflected, polynomial 0xEDB88320). */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) {
    crc ^= text.charCodeAt(i);
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}
