import type { Context } from "hono";
import type { OpenedSession } from "../../contract/portal-token.ts";
import { signPortalToken } from "../../platform/portal-token.ts";
import type { AppEnv } from "../context.ts";

/**
 * `POST /portal/api/session`: exchanges a link's token for that of a session. Nothing is stored: a link
 * can be exchanged again until it expires, for a session that ends at the same time.
 */
export async function openSession(c: Context<AppEnv>): Promise<Response> {
  const { endsAt, name } = c.get("portal");
  const workspaceId = c.get("workspaceId");
  const grant = { workspaceId, endsAt };
  const token = await signPortalToken(c.env.PORTAL_SIGNING_KEYS, "session", grant);
  const opened: OpenedSession = { token, workspace: { id: workspaceId, name } };
  return c.json(opened);
}
