import { fromBase64Url, toBase64Url } from "../contract/bytes.ts";
import { PORTAL_TOKEN } from "../contract/portal-token.ts";
import { importKeys } from "../encryption/mac.ts";

/**
 * What a token is for: a link's opens a session, for a short time, and nothing else; a session's sends
 * requests. The purpose is signed but not written, so that neither token can be used as the other.
 */
type Purpose = "link" | "session";

/** What a portal link grants, and so the sessions it opens: access to a workspace for some time. */
export interface PortalGrant {
  workspaceId: string;
  /** When a session ends, no matter when it was opened: Unix milliseconds. */
  endsAt: number;
}

const encoder = new TextEncoder();

/**
 * Signs a grant with HMAC-SHA256. The result is URL-safe.
 *
 * @param secret `PORTAL_SIGNING_KEYS`; its first key signs.
 * @param expiresAt when the token expires, if that is before its grant ends: Unix milliseconds.
 */
export async function signPortalToken(
  secret: string,
  purpose: Purpose,
  { workspaceId, endsAt }: PortalGrant,
  expiresAt = endsAt,
): Promise<string> {
  const [first] = await importKeys("PORTAL_SIGNING_KEYS", secret);
  const text = [workspaceId, toSeconds(endsAt), toSeconds(Math.min(expiresAt, endsAt))].join(".");
  const signature = await crypto.subtle.sign("HMAC", first, signedBytes(purpose, text));
  return `${text}.${toBase64Url(new Uint8Array(signature))}`;
}

/**
 * The grant of a token; null if we did not sign it for this purpose, or it has expired. Signatures are
 * compared in constant time.
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
  const [, text = "", workspaceId = "", end = "", expiry = "", written = ""] =
    PORTAL_TOKEN.exec(token) ?? [];
  const signature = text === "" ? null : bytesOf(written);
  if (!signature) return null;
  const keys = await importKeys("PORTAL_SIGNING_KEYS", secret);
  const signed = signedBytes(purpose, text);
  const verified = await Promise.all(
    keys.map((key) => crypto.subtle.verify("HMAC", key, signature, signed)),
  );
  const isValid = verified.includes(true) && now < toMilliseconds(expiry);
  return isValid ? { workspaceId, endsAt: toMilliseconds(end) } : null;
}

function signedBytes(purpose: Purpose, text: string) {
  return encoder.encode(`portal ${purpose} ${text}`);
}

function toSeconds(at: number): string {
  return Math.floor(at / 1000).toString(36);
}

function toMilliseconds(seconds: string): number {
  return Number.parseInt(seconds, 36) * 1000;
}

/** Decodes base64url; null if the text is not the canonical encoding of its bytes. */
function bytesOf(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return fromBase64Url(text);
  } catch {
    return null;
  }
}
