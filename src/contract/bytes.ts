/*
 * `Uint8Array` has methods for this, but Node 20 does not, and the receiver checker must run on it.
 */

const HEX_PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** Encodes bytes as lower-case hexadecimal. */
export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += HEX_PAIRS[byte];
  return text;
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
