/** Base64url without padding (RFC 4648, section 5). */
export function toBase64Url(bytes: Uint8Array): string {
  return bytes.toBase64({ alphabet: "base64url", omitPadding: true });
}

/** The bytes of a base64url text without padding; throws on anything else. */
export function fromBase64Url(text: string): Uint8Array<ArrayBuffer> {
  const bytes = Uint8Array.fromBase64(text, { alphabet: "base64url" });
  if (toBase64Url(bytes) !== text) throw new SyntaxError("not canonical base64url");
  return bytes;
}
