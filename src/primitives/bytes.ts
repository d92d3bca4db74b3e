/*
 * Bytes as hexadecimal and base64. `Uint8Array` has methods for this, but not in Node 20, on which the receiver
 * checker runs.
 */

const HEX_PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

declare const IS_HEX: unique symbol;
/** Bytes in hexadecimal. The type is branded, because a column of bytes takes no other text. */
export type Hex = string & { readonly [IS_HEX]: true };

/** Encodes bytes as lower-case hexadecimal. */
export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += HEX_PAIRS[byte];
  return text;
}

/** The value of each hexadecimal digit, by its character code. */
const HEX_VALUES = Uint8Array.from({ length: 128 }, (_, code) =>
  Number.parseInt(String.fromCharCode(code), 16),
);

/**
 * Decodes hexadecimal; any other character counts as 0. It is several times as fast as V8's method, which took a
 * quarter of the CPU time of a page of large leads.
 */
export function fromHex(text: string): Uint8Array<ArrayBuffer> {
  const codes = new TextEncoder().encode(text);
  const bytes = new Uint8Array(codes.length >> 1);
  for (let i = 0; i < bytes.length; i++) {
    const [high, low] = [codes[2 * i], codes[2 * i + 1]] as [number, number];
    bytes[i] = ((HEX_VALUES[high] as number) << 4) | (HEX_VALUES[low] as number);
  }
  return bytes;
}

/** Compares bytes in constant time. */
export function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  return a.reduce((difference, byte, i) => difference | (byte ^ (b[i] as number)), 0) === 0;
}

/** Encodes bytes as base64 (RFC 4648, section 4), padded. */
export function toBase64(bytes: Uint8Array): string {
  let characters = "";
  for (const byte of bytes) characters += String.fromCharCode(byte);
  return btoa(characters);
}

/** Decodes base64; throws on anything else. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Encodes bytes as base64url without padding (RFC 4648, section 5). */
export function toBase64Url(bytes: Uint8Array): string {
  return toBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Decodes unpadded base64url; throws on anything else. */
export function fromBase64Url(text: string): Uint8Array<ArrayBuffer> {
  const bytes = fromBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  if (toBase64Url(bytes) !== text) throw new SyntaxError("not canonical base64url");
  return bytes;
}
