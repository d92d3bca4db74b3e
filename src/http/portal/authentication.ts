import type { Context, Next } from "hono";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { openDatabase } from "../../db/databases.ts";
import { verifyPortalToken } from "../../platform/portal-token.ts";
import { findPlacement } from "../../workspaces/placement.ts";
import { findPortalAccess } from "../../workspaces/workspaces.ts";
import { guardWrites } from "../../workspaces/write-guard.ts";
import { parseBearer, setAddressPseudonym } from "../authentication.ts";
import { readBody } from "../body.ts";
import type { AppEnv } from "../context.ts";

/** The period of `PORTAL_REQUESTS` in wrangler.toml. */
const WINDOW_SECONDS = 60;

/** Counts a request. @throws ApiError `rate_limited`. */
async function limitRequests(c: Context<AppEnv>, key: string): Promise<void> {
  const { success } = await c.env.PORTAL_REQUESTS.limit({ key });
  if (!success) throw new ApiError("rate_limited", { retry_after_seconds: WINDOW_SECONDS });
}

/** The path that exchanges the token of a link for the token of a session. All other paths require a session. */
export const EXCHANGE = "/portal/api/session";

/**
 * Authenticates all requests under `/portal/api`. Admits requests with a valid token whose workspace has access. A
 * token that we did not sign costs no look-up. A read-only session may change nothing. If the path names a subscription
 * that does not belong to the workspace, the response is 404, and nothing else is read.
 *
 * Requests count twice: first for their link, whose sessions may have ended, and then for the workspace. So a session
 * that has ended uses up no limit but its own.
 *
 * As under `/v1`, the body is read before the request is admitted, and its transactions fail if the session has
 * ended in the meantime.
 *
 * @throws ApiError `invalid_api_key`, `rate_limited`, `workspace_access_denied` or
 *   `webhook_not_found`, in this order.
 */
export async function authenticatePortal(c: Context<AppEnv>, next: Next): Promise<void> {
  await setAddressPseudonym(c);
  const token = parseBearer(c.req.header("Authorization"));
  const purpose = c.req.path === EXCHANGE ? "link" : "session";
  const { PORTAL_SIGNING_KEYS: keys } = c.env;
  const grant = token && (await verifyPortalToken(keys, purpose, token, Date.now()));
  if (!grant) throw new ApiError("invalid_api_key");
  const { workspaceId, issuedAt } = grant;
  await limitRequests(c, `${workspaceId} ${issuedAt}`);
  if (c.req.method === "POST" && purpose === "session") {
    await readBody(c).catch(() => {});
    if (Date.now() >= grant.endsAt) throw new ApiError("invalid_api_key");
  }
  const placement = await findPlacement(c.env, workspaceId);
  const webhookId = /^\/portal\/api\/webhooks\/([^/]+)/.exec(c.req.path)?.[1] ?? null;
  const named = webhookId !== null && isId("webhook", webhookId) ? webhookId : null;
  if (named !== null) c.set("webhookId", named);
  const access = await findPortalAccess(placement.db, workspaceId, named);
  // An erased workspace looks like one that never existed.
  if (!access) throw new ApiError("invalid_api_key");
  c.set("workspaceId", workspaceId);
  if (!access.accessGranted) throw new ApiError("workspace_access_denied");
  if (issuedAt <= access.sessionsNotBefore) throw new ApiError("invalid_api_key");
  await limitRequests(c, workspaceId);
  const isChange = purpose === "session" && c.req.method !== "GET" && c.req.method !== "HEAD";
  if (isChange && grant.readOnly)
    throw new ApiError("workspace_access_denied", { reason: "read_only_session" });
  if (webhookId !== null && !access.webhookFound) throw new ApiError("webhook_not_found");
  const { database, db } = placement;
  const guard = guardWrites(workspaceId, { issuedAt });
  c.set("placement", { database, db: isChange ? openDatabase(c.env, database, guard) : db });
  c.set("portal", { grant, name: access.name });
  await next();
}
