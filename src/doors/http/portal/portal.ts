import { type Context, Hono } from "hono";
import { ApiError } from "../../../contract/errors.ts";
import { UnknownInput } from "../../../contract/input-error.ts";
import { answerHashed, policyOf, readAsset } from "../assets.ts";
import type { AppEnv } from "../context.ts";
import { served } from "../served.ts";
import { createWebhook } from "../webhooks.ts";

/**
 * The portal of a workspace's webhooks: a page and its API, for anyone with a link from the
 * Platform door. Handlers are loaded on first use: most isolates never serve the portal.
 */
export const portal = new Hono<AppEnv>();

const webhooks = lazily(() => import("./webhooks.ts"));
const deliveries = lazily(() => import("./deliveries.ts"));
const workspace = lazily(() => import("./workspace.ts"));

portal.use("/portal/*", async (c, next) => {
  if (c.env.PORTAL === "off") throw new ApiError("route_not_found");
  c.set("unmetered", true);
  await next();
});

portal.get("/portal", async (c) => {
  const type = "text/html; charset=utf-8";
  const page = await readAsset(c, "/portal/index.html");
  if (!page) return c.notFound();
  return new Response(page.body, { headers: { "Content-Type": type, ...policyOf(type) } });
});

/** A file of the portal page: `name.hash.js`. */
const HASHED = /^\/portal\/[\w-]+\.[\w-]{8,}\.\w+$/;
portal.get("/portal/:file", (c) => answerHashed(c, HASHED));

portal.use("/portal/api/*", async (c, next) => (await import("./gate.ts")).portalGate(c, next));
portal.use("/portal/api/webhooks/*", served("webhooks"));

const api = new Hono<AppEnv>();
api.get(
  "/workspace",
  workspace((on) => on.showWorkspace),
);
api.get(
  "/keys",
  workspace((on) => on.listKeys),
);
api.get(
  "/webhooks",
  webhooks((on) => on.listWebhooks),
);
api.post("/webhooks", createWebhook);
api.get(
  "/webhooks/:id",
  webhooks((on) => on.showWebhook),
);
api.delete(
  "/webhooks/:id",
  webhooks((on) => on.removeWebhook),
);
api.post(
  "/webhooks/:id/enable",
  webhooks((on) => on.enableWebhook),
);
api.post(
  "/webhooks/:id/secret",
  webhooks((on) => on.rotateWebhookSecret),
);
api.post(
  "/webhooks/:id/test",
  webhooks((on) => on.testWebhook),
);
api.get(
  "/webhooks/:id/deliveries",
  deliveries((on) => on.listWebhookDeliveries),
);
api.get(
  "/webhooks/:id/deliveries/:event_id",
  deliveries((on) => on.showDelivery),
);
api.post(
  "/webhooks/:id/redeliver",
  deliveries((on) => on.redeliver),
);
portal.route("/portal/api", api);

type Handler = (c: Context<AppEnv>) => Promise<Response>;

/** Makes handlers from a module that is loaded when one of them is first called. */
function lazily<Handlers>(load: () => Promise<Handlers>) {
  return (pick: (handlers: Handlers) => Handler): Handler =>
    async (c) => {
      try {
        return await pick(await load())(c);
      } catch (error) {
        throw error instanceof UnknownInput ? toNotFound(error) : error;
      }
    };
}

/**
 * Turns an unknown input into 404. Unless the subscription itself is missing, the details name the
 * parameter.
 */
function toNotFound({ parameter }: UnknownInput): ApiError {
  if (parameter === "webhookId") return new ApiError("webhook_not_found");
  const name = parameter
    .replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    .replace(/\[(\d+)\]/, ".$1");
  return new ApiError("webhook_not_found", { parameter: name });
}
