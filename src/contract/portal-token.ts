import { fromBase64Url, toBase64Url } from "../primitives/bytes.ts";
import { ID_PREFIXES } from "./ids.ts";

/**
 * The shape of a portal token, `workspace.end.expiry.issued.options.signature`. The end and the expiry are
 * base-36 seconds, the time of issue is base-36 milliseconds, and the rest is base64url.
 * The options have up to 4,436 characters, with the longest actor and URL.
 */
export const PORTAL_TOKEN = new RegExp(
  `^((${ID_PREFIXES.workspace}[0-9a-z]{1,40})\\.([0-9a-z]{1,8})\\.([0-9a-z]{1,8})\\.([0-9a-z]{1,9})\\.([\\w-]{2,4500}))\\.([\\w-]{43})$`,
);

/** The options that the platform chooses for the user of a portal link. */
interface PortalOptions {
  /** The platform's name for the user, for the audit trail; null if it gave none. */
  actor: string | null;
  /** Whether the session may change nothing. */
  readOnly: boolean;
  /** The `https:` URL that the page leads back to; null if there is none. */
  returnUrl: string | null;
}

/** The grant of a portal link and its sessions: access to a workspace for a limited time. */
export interface PortalGrant extends PortalOptions {
  workspaceId: string;
  /** When the link was created, in Unix milliseconds. A session has the time of its link. */
  issuedAt: number;
  /** When a session ends, whenever it was opened, in Unix milliseconds. */
  endsAt: number;
}

/** Writes the part of a token that is signed. */
export function writePortalGrant(grant: PortalGrant, expiresAt: number): string {
  const { workspaceId, issuedAt, endsAt, actor, readOnly, returnUrl } = grant;
  const options = {
    ...(actor !== null && { actor }),
    ...(readOnly && { readOnly }),
    ...(returnUrl !== null && { returnUrl }),
  };
  return [
    workspaceId,
    Math.floor(endsAt / 1000).toString(36),
    Math.floor(Math.min(expiresAt, endsAt) / 1000).toString(36),
    issuedAt.toString(36),
    toBase64Url(new TextEncoder().encode(JSON.stringify(options))),
  ].join(".");
}

/** A parsed token, whose signature is not verified yet. */
interface ReadToken {
  /** The part that is signed. */
  text: string;
  grant: PortalGrant;
  /** Unix milliseconds. */
  expiresAt: number;
  signature: Uint8Array<ArrayBuffer>;
}

/**
 * Parses a portal token; null if the text is not one. The portal's page uses it for the token of its own session. The
 * signature is not verified here, so a grant is only certain once the server has accepted the token.
 */
export function readPortalToken(token: string): ReadToken | null {
  const found = PORTAL_TOKEN.exec(token);
  if (!found) return null;
  const [, text = "", workspaceId = "", end = "", expiry = "", issued = "", options = ""] = found;
  try {
    const given: Partial<PortalOptions> = JSON.parse(
      new TextDecoder().decode(fromBase64Url(options)),
    );
    const grant = {
      workspaceId,
      issuedAt: Number.parseInt(issued, 36),
      endsAt: Number.parseInt(end, 36) * 1000,
      actor: given.actor ?? null,
      readOnly: given.readOnly === true,
      returnUrl: given.returnUrl ?? null,
    };
    const expiresAt = Number.parseInt(expiry, 36) * 1000;
    return { text, grant, expiresAt, signature: fromBase64Url(found[7] ?? "") };
  } catch {
    return null;
  }
}

/** The session that a link is exchanged for. */
export interface OpenedSession extends PortalOptions {
  /** The token for requests until the session ends. */
  token: string;
  workspace: { id: string; name: string };
}
