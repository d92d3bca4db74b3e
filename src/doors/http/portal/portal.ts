import type { Context } from "hono";
import { ApiError } from "../../../contract/errors.ts";
import { UnknownInput } from "../../../contract/input-error.ts";
import { answerHashed, policyOf, readAsset } from "../assets.ts";
import { type AppEnv, newApp } from "../context.ts";
import { served } from "../served.ts";
import { listWebhookDeliveries, redeliver, showDelivery } from "./deliveries.ts";
import { EXCHANGE, portalGate } from "./gate.ts";
import {
  createWebhook,
  enableWebhook,
  listWebhooks,
  removeWebhook,
  rotateWebhookSecret,
  showWebhook,
  testWebhook,
} from "./webhooks.ts";
import { listKeys, openSession, showWorkspace } from "./workspace.ts";

/**
 * The portal of a workspace's webhooks: a page and its API, for anyone who opens a link from the
 * Platform door.
 */
export const portal = newApp();

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

portal.use("/portal/api/*", portalGate);
portal.use("/portal/api/webhooks/*", served("webhooks"));

portal.post(EXCHANGE, openSession);
const api = newApp();
api.get("/workspace", handle(showWorkspace));
api.get("/keys", handle(listKeys));
api.get("/webhooks", handle(listWebhooks));
api.post("/webhooks", handle(createWebhook));
api.get("/webhooks/:id", handle(showWebhook));
api.delete("/webhooks/:id", handle(removeWebhook));
api.post("/webhooks/:id/enable", handle(enableWebhook));
api.post("/webhooks/:id/secret", handle(rotateWebhookSecret));
api.post("/webhooks/:id/test", handle(testWebhook));
api.get("/webhooks/:id/deliveries", handle(listWebhookDeliveries));
api.get("/webhooks/:id/deliveries/:event_id", handle(showDelivery));
api.post("/webhooks/:id/redeliver", handle(redeliver));
portal.route("/portal/api", api);

type Handler = (c: Context<AppEnv>) => Promise<Response>;

/** Makes a handler answer 404 if the model does not find what the request names. */
function handle(handler: Handler): Handler {
  return async (c) => {
    try {
      return await handler(c);
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
