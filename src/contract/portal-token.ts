import { ID_PREFIXES } from "./ids.ts";

/**
 * The shape of a portal token, `workspace.end.expiry.signature`: two times in base-36 seconds, and the
 * signature in base64url.
 */
export const PORTAL_TOKEN = new RegExp(
  `^((${ID_PREFIXES.workspace}[0-9a-z]{1,40})\\.([0-9a-z]{1,8})\\.([0-9a-z]{1,8}))\\.([\\w-]{43})$`,
);

/** What a link is exchanged for. */
export interface OpenedSession {
  /** Sends requests until the session ends. */
  token: string;
  workspace: { id: string; name: string };
}
