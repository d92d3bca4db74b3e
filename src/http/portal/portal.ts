import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ApiError } from "../../contract/errors.ts";
import { isId } from "../../contract/ids.ts";
import { parseInput } from "../../contract/input.ts";
import { DESCRIPTION_MAX_LENGTH } from "../../contract/limits.ts";
import type { OpenedSession } from "../../contract/portal-token.ts";
import { CustomHeaders } from "../../endpoints/headers.ts";
import { isObject, noteSession, runInPortal } from "../../platform/invoke.ts";
import type { NoteChange, Operation } from "../../platform/operation.ts";
import { OPERATIONS, type PlatformMethod } from "../../platform/operations.ts";
import { signPortalToken } from "../../platform/portal-token.ts";
import { label } from "../../primitives/text.ts";
import { findFields, showFields } from "../../subscriptions/fields.ts";
import { PAGE_HEADERS, readAsset, serveHashed } from "../assets.ts";
import { readJson } from "../body.ts";
import { type AppEnv, newApp, served } from "../context.ts";
import {
  CreationHeaders,
  IDEMPOTENCY_KEY,
  subscribe,
  unsubscribe,
  WebhookCreation,
} from "../routes/webhooks.ts";
import { authenticatePortal, EXCHANGE } from "./authentication.ts";

/**
 * The portal of a workspace's webhooks: a page and its API. Anyone who opens a link from the Platform API can use it.
 */
export const portal = newApp();

portal.use("/portal/*", async (c, next) => {
  if (c.env.PORTAL === "off") throw new ApiError("route_not_found");
  await next();
});

/** Returns the facts about the deployment that the page reads from its `meta` elements, by name. */
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
 * Exchanges the token of a link for the token of a session. Only the audit trail notes it, so a link can be exchanged
 * again until it expires, for a session that ends at the same time.
 */
portal.post(EXCHANGE, async (c) => {
  const { grant, name } = c.get("portal");
  const { workspaceId: id, actor, readOnly, returnUrl } = grant;
  const token = await signPortalToken(c.env.PORTAL_SIGNING_KEYS, "session", grant);
  noteSession({ env: c.env, ctx: c.executionCtx }, grant);
  const opened = { token, workspace: { id, name }, actor, readOnly, returnUrl };
  return c.json(opened satisfies OpenedSession);
});

/**
 * The operations that a session may call, one for each path. A subscription in the path belongs to the workspace, as
 * the authentication has checked. Without one, the operation is about the workspace.
 */
export const ALLOWED = [
  ["GET", "/workspace", "readWorkspace"],
  ["GET", "/changes", "listWorkspaceChanges"],
  ["GET", "/keys", "listApiKeys"],
  ["GET", "/webhooks", "listWebhooks"],
  ["GET", "/failures", "listFailures"],
  ["GET", "/failure-counts", "countFailures"],
  ["GET", "/webhooks/:webhookId", "readWebhook"],
  ["GET", "/webhooks/:webhookId/changes", "listWebhookChanges"],
  ["POST", "/webhooks/:webhookId/update", "updateWebhook"],
  ["POST", "/webhooks/:webhookId/disable", "disableWebhook"],
  ["POST", "/webhooks/:webhookId/enable", "enableWebhook"],
  ["POST", "/webhooks/:webhookId/secret", "rotateWebhookSecret"],
  ["POST", "/webhooks/:webhookId/overlap", "endSecretOverlap"],
  ["POST", "/webhooks/:webhookId/test", "sendTestEvent"],
  ["GET", "/webhooks/:webhookId/deliveries", "listDeliveries"],
  ["GET", "/webhooks/:webhookId/deliveries/:eventId", "readDelivery"],
  ["POST", "/webhooks/:webhookId/redeliver", "redeliver"],
  ["GET", "/webhooks/:webhookId/replays", "listReplays"],
  ["POST", "/webhooks/:webhookId/stop", "stopReplay"],
] as const satisfies [method: string, path: string, operation: PlatformMethod][];

for (const [method, path, name] of ALLOWED)
  portal.on(method, `/portal/api${path}`, async (c) => c.json(await perform(c, name)));

const PortalCreation = z.strictObject({
  ...WebhookCreation.shape,
  description: label(DESCRIPTION_MAX_LENGTH).optional(),
  headers: CustomHeaders.optional(),
});

// These two are operations of the API, which take the workspace from the key. Here, it comes from the session.
portal.post("/portal/api/webhooks", async (c) => {
  const creation = parseInput(PortalCreation, await readJson(c));
  const { [IDEMPOTENCY_KEY]: key } = parseInput(CreationHeaders, c.req.header());
  const created = await inSession(c, "createWebhook", (noteChange) =>
    subscribe(c, creation, key, noteChange),
  );
  return c.json(created, 201);
});
portal.delete("/portal/api/webhooks/:webhookId", async (c) => {
  const { webhookId } = c.req.param();
  await inSession(c, "deleteWebhook", async (noteChange) => {
    const before = showFields(await findFields(c.get("placement").db, webhookId));
    await noteChange({ webhookId, before });
    await unsubscribe(c, webhookId);
  });
  return c.body(null, 204);
});

/** The path of a file of the page, with a hash in its name, such as `name.hash.js`. */
const HASHED = /^\/portal\/[\w-]+\.[\w-]{8,}\.\w+$/;
// This route is the last one, and has a wildcard, because a parameter would make Hono use its slower router.
portal.get("/portal/*", (c) => serveHashed(c, HASHED));

/** Runs an operation for the session, under its name in the log and the audit trail. */
function inSession<Result>(
  c: Context<AppEnv>,
  name: string,
  run: (noteChange: NoteChange) => Promise<Result>,
): Promise<Result> {
  c.set("operation", name);
  return runInPortal(c.env, name, c.get("workspaceId"), c.get("portal").grant.actor, run);
}

/** Runs an operation with the query or body of the request, and with the ids that the session is bound to. */
async function perform(c: Context<AppEnv>, name: PlatformMethod): Promise<object> {
  const { input, run }: Operation = OPERATIONS[name];
  const { webhookId, eventId } = c.req.param() as Record<string, string | undefined>;
  if (eventId !== undefined && isId("event", eventId)) c.set("eventId", eventId);
  const bound = {
    ...(webhookId === undefined ? { workspaceId: c.get("workspaceId") } : { webhookId }),
    ...(eventId === undefined ? {} : { eventId }),
  };
  const given = c.req.method === "POST" ? await readJson(c) : filled(queryOf(c));
  const value = parseInput(input, isObject(given) ? { ...given, ...bound } : given);
  const call = {
    env: c.env,
    ctx: c.executionCtx,
    actor: c.get("portal").grant.actor,
    placement: c.get("placement"),
  };
  const performed = await inSession(c, name, (noteChange) => run({ ...call, noteChange }, value));
  return performed as object;
}

/** Returns the query parameters of a request in the form of the validator, with a list for a repeated one. */
function queryOf(c: Context): Record<string, string | string[] | undefined> {
  const queries = Object.entries(c.req.queries());
  return Object.fromEntries(queries.map(([name, all]) => [name, all.length > 1 ? all : all[0]]));
}

/** The parameters that are numbers. A phone number is none. */
const NUMBERS = ["limit", "status"];

/** Returns the parameters of a query, with numbers as numbers. An empty one is a filter that is not set. */
function filled(query: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(query)
      .filter(([, value]) => value !== "")
      .map(([name, value]) => [
        name,
        NUMBERS.includes(name) && /^\d+$/.test(String(value)) ? Number(value) : value,
      ]),
  );
}
