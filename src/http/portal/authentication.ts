import type { Context, Next } from "hono";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { verifyPortalToken } from "../../platform/portal-token.ts";
import { findPlacement } from "../../workspaces/placement.ts";
import { findPortalAccess } from "../../workspaces/workspaces.ts";
import { parseBearer, undo } from "../authentication.ts";
import { readBody } from "../body.ts";
import type { AppEnv } from "../context.ts";

/** The period of `PORTAL_REQUESTS` in wrangler.toml. */
const WINDOW_SECONDS = 60;

/** Where a link's token is exchanged for that of a session, which everything else requires. */
export const EXCHANGE = "/portal/api/session";

/**
 * Authenticates everything under `/portal/api`: admits requests with a valid token whose workspace
 * has access, and gives the handlers the workspace. If the path names a subscription that does not
 * belong to the workspace, the answer is 404, and nothing else is read. A token that we did not sign causes
 * no look-up. As under `/v1`, the body is read before the request is admitted, and a new subscription is
 * undone if the session has ended in the meantime.
 *
 * @throws ApiError `invalid_api_key`, `rate_limited`, `workspace_access_denied` or
 *   `webhook_not_found`, in this order.
 */
export async function authenticatePortal(c: Context<AppEnv>, next: Next): Promise<void> {
  const token = parseBearer(c.req.header("Authorization"));
  const purpose = c.req.path === EXCHANGE ? "link" : "session";
  const { PORTAL_SIGNING_KEYS: keys } = c.env;
  const grant = token && (await verifyPortalToken(keys, purpose, token, Date.now()));
  if (!grant) throw new ApiError("invalid_api_key");
  const { workspaceId, endsAt } = grant;
  const { success } = await c.env.PORTAL_REQUESTS.limit({ key: workspaceId });
  if (!success) throw new ApiError("rate_limited", { retry_after_seconds: WINDOW_SECONDS });
  if (c.req.method === "POST" && purpose === "session") {
    await readBody(c);
    if (Date.now() >= endsAt) throw new ApiError("invalid_api_key");
  }
  const placement = await findPlacement(c.env, workspaceId);
  const webhookId = /^\/portal\/api\/webhooks\/([^/]+)/.exec(c.req.path)?.[1] ?? null;
  const named = webhookId !== null && isId("webhook", webhookId) ? webhookId : null;
  const access = await findPortalAccess(placement.db, workspaceId, named);
  // An erased workspace looks like one that never existed.
  if (!access) throw new ApiError("invalid_api_key");
  c.set("workspaceId", workspaceId);
  if (!access.accessGranted) throw new ApiError("workspace_access_denied");
  if (webhookId !== null && !access.webhookFound) throw new ApiError("webhook_not_found");
  c.set("placement", placement);
  c.set("db", placement.db);
  c.set("portal", { endsAt, name: access.name });
  await next();
  if (!c.get("undo")) return;
  const later = await findPortalAccess(placement.db, workspaceId, null);
  if (!later) await undo(c, "invalid_api_key");
  else if (!later.accessGranted) await undo(c, "workspace_access_denied");
}
