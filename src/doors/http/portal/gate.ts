import type { Context, Next } from "hono";
import { ApiError } from "../../../contract/errors.ts";
import { isId } from "../../../contract/ids.ts";
import { openDatabase } from "../../../db/client.ts";
import { verifyPortalToken } from "../../../gate/portal-token.ts";
import { findPortalAccess, type PortalAccess } from "../../../model/workspaces.ts";
import type { AppEnv } from "../context.ts";
import { readBearer } from "../gate.ts";

/** The window of `PORTAL_REQUESTS` (wrangler.toml). */
const WINDOW_SECONDS = 60;

/**
 * The gate of everything under `/portal/api`: admits a request whose token is good and whose workspace
 * has access, and tells the handlers the workspace. The subscription that the path names is one of the
 * workspace, or the answer is 404. A read starts while that is being looked up, and what it found is
 * dropped when it is refused. A token that we did not sign costs no look-up.
 *
 * @throws ApiError `invalid_api_key`, `rate_limited`, `workspace_access_denied` or `webhook_not_found`, in this order.
 */
export async function portalGate(c: Context<AppEnv>, next: Next): Promise<void> {
  const token = readBearer(c.req.header("Authorization"));
  const grant = token && (await verifyPortalToken(c.env.PORTAL_SIGNING_KEYS, token, Date.now()));
  if (!grant) throw new ApiError("invalid_api_key");
  const { workspaceId, endsAt } = grant;
  const { success } = await c.env.PORTAL_REQUESTS.limit({ key: workspaceId });
  if (!success) {
    c.header("Retry-After", String(WINDOW_SECONDS));
    throw new ApiError("rate_limited", { retry_after_seconds: WINDOW_SECONDS });
  }
  const db = openDatabase(c.env.DB);
  const webhookId = /^\/portal\/api\/webhooks\/([^/]+)/.exec(c.req.path)?.[1] ?? null;
  const named = webhookId !== null && isId("webhook", webhookId) ? webhookId : null;
  const access = findPortalAccess(db, workspaceId, named);
  c.set("workspaceId", workspaceId);
  c.set("db", db);
  c.set("portal", { endsAt, access });
  const judged = access.then((found) => refusalOf(found, webhookId !== null));
  const isRead = c.req.method === "GET" || c.req.method === "HEAD";
  if (!isRead) {
    const refusal = await judged;
    if (refusal) throw refusal;
    return next();
  }
  // Looked at below, when the handler is done.
  judged.catch(() => {});
  await next();
  const refusal = await judged;
  if (!refusal) return;
  // Else it would hand down its headers.
  c.res = undefined;
  throw refusal;
}

function refusalOf(access: PortalAccess | null, namesWebhook: boolean): ApiError | null {
  // Erased: nobody tells it from one that never was.
  if (!access) return new ApiError("invalid_api_key");
  if (!access.accessGranted) return new ApiError("workspace_access_denied");
  return namesWebhook && !access.webhookFound ? new ApiError("webhook_not_found") : null;
}
