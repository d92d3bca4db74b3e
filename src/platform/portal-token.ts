import { type PortalGrant, readPortalToken, writePortalGrant } from "../contract/portal-token.ts";
import { importKeys } from "../encryption/key-ring.ts";
import { toBase64Url } from "../primitives/bytes.ts";

/**
 * The purpose of a token. The token of a link only opens a session, for a short time. The token of a session sends
 * requests. The purpose is signed but not part of the token, so that neither can be used as the other.
 */
type Purpose = "link" | "session";

/**
 * Signs a grant with HMAC-SHA256. The result is URL-safe.
 *
 * @param secret `PORTAL_SIGNING_KEYS`; its first key signs.
 * @param expiresAt when the token expires, if that is before its grant ends: Unix milliseconds.
 */
export async function signPortalToken(
  secret: string,
  purpose: Purpose,
  grant: PortalGrant,
  expiresAt = grant.endsAt,
): Promise<string> {
  const [first] = await importKeys("PORTAL_SIGNING_KEYS", secret);
  const text = writePortalGrant(grant, expiresAt);
  const signature = await crypto.subtle.sign("HMAC", first, signedBytes(purpose, text));
  return `${text}.${toBase64Url(new Uint8Array(signature))}`;
}

/**
 * Verifies a token and returns its grant; null if we did not sign it for this purpose, or if it has expired. Signatures
 * are compared in constant time.
 *
 * @param secret `PORTAL_SIGNING_KEYS`; any of its keys may have signed.
 * @param now Unix milliseconds.
 */
export async function verifyPortalToken(
  secret: string,
  purpose: Purpose,
  token: string,
  now: number,
): Promise<PortalGrant | null> {
  const read = readPortalToken(token);
  if (!read || now >= read.expiresAt) return null;
  const keys = await importKeys("PORTAL_SIGNING_KEYS", secret);
  const signed = signedBytes(purpose, read.text);
  const verified = await Promise.all(
    keys.map((key) => crypto.subtle.verify("HMAC", key, read.signature, signed)),
  );
  return verified.includes(true) ? read.grant : null;
}

function signedBytes(purpose: Purpose, text: string) {
  return new TextEncoder().encode(`portal ${purpose} ${text}`);
}
