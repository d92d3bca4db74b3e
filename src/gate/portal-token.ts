import { fromBase64Url, toBase64Url } from "../contract/bytes.ts";
import { ID_PREFIXES } from "../contract/ids.ts";
import { importKeys } from "./mac.ts";

/** What a portal link grants: access to a workspace until it expires. */
export interface PortalGrant {
  workspaceId: string;
  /** Unix milliseconds. */
  endsAt: number;
}

/** `workspace.end.signature`: the expiry in base-36 seconds, the signature in base64url. */
const SHAPE = new RegExp(
  `^((${ID_PREFIXES.workspace}[0-9a-z]{1,40})\\.([0-9a-z]{1,8}))\\.([\\w-]{43})$`,
);

const encoder = new TextEncoder();

/**
 * Signs a grant with HMAC-SHA256. The result is URL-safe.
 *
 * @param secret `PORTAL_SIGNING_KEYS`; its first key signs.
 */
export async function signPortalToken(
  secret: string,
  { workspaceId, endsAt }: PortalGrant,
): Promise<string> {
  const [first] = await importKeys("PORTAL_SIGNING_KEYS", secret);
  const text = `${workspaceId}.${Math.floor(endsAt / 1000).toString(36)}`;
  const signature = await crypto.subtle.sign("HMAC", first, encoder.encode(text));
  return `${text}.${toBase64Url(new Uint8Array(signature))}`;
}

/**
 * The grant of a token; null if we did not sign it or it has expired. Signatures are compared in
 * constant time.
 *
 * @param secret `PORTAL_SIGNING_KEYS`; any of its keys may have signed.
 * @param now Unix milliseconds.
 */
export async function verifyPortalToken(
  secret: string,
  token: string,
  now: number,
): Promise<PortalGrant | null> {
  const [, text = "", workspaceId = "", end = "", written = ""] = SHAPE.exec(token) ?? [];
  const signature = text === "" ? null : bytesOf(written);
  if (!signature) return null;
  const keys = await importKeys("PORTAL_SIGNING_KEYS", secret);
  const signed = encoder.encode(text);
  const verified = await Promise.all(
    keys.map((key) => crypto.subtle.verify("HMAC", key, signature, signed)),
  );
  const endsAt = Number.parseInt(end, 36) * 1000;
  return verified.includes(true) && now < endsAt ? { workspaceId, endsAt } : null;
}

/** Decodes base64url; null if the text is not the canonical encoding of its bytes. */
function bytesOf(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return fromBase64Url(text);
  } catch {
    return null;
  }
}
