import {
  type Answer,
  EVERY_ANSWER,
  openApi,
  openWorkspace,
  refusal,
  setUp,
  success,
} from "./api.ts";
import { announceLeads, HOUR_MS, subscribe, subscriberUrl } from "./deliveries.ts";

/** The token in a portal link, as the page reads it from the fragment. */
export async function linkToken(workspaceId: string, validMinutes?: number): Promise<string> {
  const { url } = await setUp.createPortalLink({ workspaceId, validMinutes });
  return new URL(url).hash.slice(1);
}

/** Makes the grant of a link that was created just now, with the defaults of the platform. */
export function grantOf(workspaceId: string, endsAt: number) {
  const options = { actor: null, readOnly: false, returnUrl: null };
  return { workspaceId, issuedAt: Date.now(), endsAt, ...options };
}

/** Exchanges a link's token for a session, as the page does. */
export function exchange(link: string, fetch?: Parameters<typeof openApi>[1]) {
  return portalOf(link, fetch).send<{ token: string }>("/session", { method: "POST" });
}

/** The token of a portal session, opened with a link. */
export async function sessionToken(workspaceId: string, validMinutes?: number): Promise<string> {
  const { body } = await exchange(await linkToken(workspaceId, validMinutes));
  return body.token;
}

/** The portal API of a workspace, as used in a session; paths are relative to `/portal/api`. */
export async function openPortal(workspaceId: string, fetch?: Parameters<typeof openApi>[1]) {
  return portalOf(await sessionToken(workspaceId), fetch);
}

/** The portal API, as used with a token. */
export function portalOf(token: string, fetch?: Parameters<typeof openApi>[1]) {
  const api = openApi(token, fetch);
  const under = (path: string) => `/portal/api${path}`;
  return {
    send: <Body = unknown>(path: string, init?: RequestInit) => api.send<Body>(under(path), init),
    get: <Body = unknown>(path: string) => api.get<Body>(under(path)),
    post: <Body = unknown>(path: string, body: unknown) => api.post<Body>(under(path), body),
    delete: (path: string) => api.delete(under(path)),
  };
}

/** A workspace with a webhook that is owed three events, an hour old, and its portal. */
export async function openOwed(behaviour?: string) {
  const workspace = await openWorkspace();
  const { workspaceId } = workspace;
  const { id: webhookId, url } = await subscribe(workspaceId, { url: subscriberUrl(behaviour) });
  const drafts = await announceLeads(workspaceId, 3, Date.now() - HOUR_MS);
  const eventIds = drafts.map(({ id }) => id).toSorted() as [string, string, string];
  const portal = await openPortal(workspaceId);
  return { ...workspace, webhookId, url, eventIds, portal, path: `/webhooks/${webhookId}` };
}

const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** The headers of a page and of its files: it may load what this deployment serves, and nothing else. */
export const PAGE_ANSWER = {
  ...EVERY_ANSWER,
  "content-security-policy": PAGE_POLICY,
  "cross-origin-opener-policy": "same-origin",
};

/** The headers of a file that browsers may cache for ever: a cached rate limit would be wrong. */
export const HASHED_ANSWER = {
  ...Object.fromEntries(
    Object.entries(PAGE_ANSWER).filter(([name]) => !/^(x-)?ratelimit/.test(name)),
  ),
  "cache-control": "public, max-age=31536000, immutable",
};

/** The whole expected success response of the portal. */
export function portalSuccess(status: number, body: unknown): Answer {
  return success(status, body);
}

/** The whole expected error response of the portal. */
export function portalRefusal(...error: Parameters<typeof refusal>): Answer {
  return refusal(...error);
}
