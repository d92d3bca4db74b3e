import type { Context } from "hono";
import { ApiError } from "../../contract/errors.ts";
import { parseInput } from "../../contract/parse.ts";
import type { OpenedSession } from "../../contract/portal-token.ts";
import { listApiKeys } from "../../platform/api-keys.ts";
import { listDeliveries, readDelivery, redeliver } from "../../platform/deliveries.ts";
import { isObject } from "../../platform/invoke.ts";
import type { Operation } from "../../platform/operation.ts";
import { signPortalToken } from "../../platform/portal-token.ts";
import {
  disableWebhook,
  enableWebhook,
  endSecretOverlap,
  listWebhooks,
  readWebhook,
  rotateWebhookSecret,
  sendTestEvent,
  updateWebhook,
} from "../../platform/webhooks.ts";
import { readWorkspace } from "../../platform/workspaces.ts";
import { answerHashed, PAGE_HEADERS, readAsset } from "../assets.ts";
import { readJson } from "../body.ts";
import { type AppEnv, newApp } from "../context.ts";
import { queryOf } from "../invalid.ts";
import { subscribe, unsubscribe, WebhookCreation } from "../routes/webhooks.ts";
import { served } from "../served.ts";
import { authenticatePortal, EXCHANGE } from "./authentication.ts";

/**
 * The portal of a workspace's webhooks: a page and its API, for anyone who opens a link from the
 * Platform API.
 */
export const portal = newApp();

portal.use("/portal/*", async (c, next) => {
  if (c.env.PORTAL === "off") throw new ApiError("route_not_found");
  await next();
});

/** What the page is told about the deployment: its `meta` elements, by name. */
function metaOf(env: Env): Record<string, string> {
  const { PORTAL_NAME: name, PORTAL_COLOR: color, ALLOW_LOCAL_WEBHOOKS: local = "" } = env;
  return {
    "application-name": name,
    "theme-color": /^#[\da-f]{6}$/i.test(color) ? color : "",
    "local-webhooks": local,
  };
}

portal.get("/portal", async (c) => {
  const page = await readAsset(c, "/portal/index.html");
  if (!page) return c.notFound();
  const rewriter = new HTMLRewriter();
  for (const [name, value] of Object.entries(metaOf(c.env)))
    rewriter.on(`meta[name="${name}"]`, {
      element: (meta) => void meta.setAttribute("content", value),
    });
  const headers = { "Content-Type": "text/html; charset=utf-8", ...PAGE_HEADERS };
  return rewriter.transform(new Response(page.body, { headers }));
});

portal.use("/portal/api/*", authenticatePortal);
portal.use("/portal/api/webhooks/*", served("webhooks"));

/**
 * Exchanges a link's token for that of a session. Nothing is stored: a link can be exchanged again until it
 * expires, for a session that ends at the same time.
 */
portal.post(EXCHANGE, async (c) => {
  const { endsAt, name } = c.get("portal");
  const id = c.get("workspaceId");
  const grant = { workspaceId: id, endsAt };
  const token = await signPortalToken(c.env.PORTAL_SIGNING_KEYS, "session", grant);
  return c.json({ token, workspace: { id, name } } satisfies OpenedSession);
});

/**
 * All that a session may do, one operation per path. A subscription in the path belongs to the workspace,
 * as the authentication has checked; without one, the operation is about the workspace.
 */
export const ALLOWED = [
  ["GET", "/workspace", readWorkspace],
  ["GET", "/keys", listApiKeys],
  ["GET", "/webhooks", listWebhooks],
  ["GET", "/webhooks/:webhookId", readWebhook],
  ["POST", "/webhooks/:webhookId/update", updateWebhook],
  ["POST", "/webhooks/:webhookId/disable", disableWebhook],
  ["POST", "/webhooks/:webhookId/enable", enableWebhook],
  ["POST", "/webhooks/:webhookId/secret", rotateWebhookSecret],
  ["POST", "/webhooks/:webhookId/overlap", endSecretOverlap],
  ["POST", "/webhooks/:webhookId/test", sendTestEvent],
  ["GET", "/webhooks/:webhookId/deliveries", listDeliveries],
  ["GET", "/webhooks/:webhookId/deliveries/:eventId", readDelivery],
  ["POST", "/webhooks/:webhookId/redeliver", redeliver],
] as const;

for (const [method, path, operation] of ALLOWED)
  portal.on(method, `/portal/api${path}`, async (c) => c.json(await perform(c, operation)));

// These two are operations of the API: their workspace comes from the key there, and from the session here.
portal.post("/portal/api/webhooks", async (c) => {
  const creation = parseInput(WebhookCreation, await readJson(c));
  return c.json(await subscribe(c, creation), 201);
});
portal.delete("/portal/api/webhooks/:webhookId", async (c) => {
  await unsubscribe(c, c.req.param("webhookId"));
  return c.body(null, 204);
});

/** A file of the portal page: `name.hash.js`. */
const HASHED = /^\/portal\/[\w-]+\.[\w-]{8,}\.\w+$/;
// Last, and with a wildcard: a parameter here would make Hono fall back to its slower router.
portal.get("/portal/*", (c) => answerHashed(c, HASHED));

/** Runs an operation with the query or body of the request, and with what the session is bound to. */
async function perform(c: Context<AppEnv>, { input, run }: Operation): Promise<object> {
  const { webhookId, eventId } = c.req.param() as Record<string, string | undefined>;
  const bound = {
    ...(webhookId === undefined ? { workspaceId: c.get("workspaceId") } : { webhookId }),
    ...(eventId === undefined ? {} : { eventId }),
  };
  const given = c.req.method === "POST" ? await readJson(c) : filled(queryOf(c));
  const value = parseInput(input, isObject(given) ? { ...given, ...bound } : given);
  const call = {
    env: c.env,
    ctx: c.executionCtx,
    placement: { ...c.get("placement"), db: c.get("db") },
  };
  return (await run(call, value)) as object;
}

/** The non-empty parameters of a query, with numbers as numbers; a filter that is not set is empty. */
function filled(query: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(query)
      .filter(([, value]) => value !== "")
      .map(([name, value]) => [name, /^\d+$/.test(String(value)) ? Number(value) : value]),
  );
}
