import type { OpenAPIHono, z } from "@hono/zod-openapi";
import { WebhookDelivery, type WebhookEvent } from "../contract/resources.ts";
import type { AppEnv } from "./context.ts";
import { introduction } from "./introduction.ts";

/** The version of the contract (contract, Versioning). */
const CONTRACT_VERSION = "1.0.0-draft.2";

const SIGNATURE_HEADERS = [
  {
    name: "X-Service-Signature",
    description:
      "`t=<unix seconds>,v1=<hex>`: HMAC-SHA256 of `{t}.{raw body}`, keyed with the whole secret. Refuse a `t` more than 5 minutes away.",
    example: "t=1773480413,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd",
  },
  {
    name: "webhook-id",
    description: "The event's `id` (Standard Webhooks).",
    example: "evt_0q2m5x8c1v7b4n9k3j6h0g2f5",
  },
  {
    name: "webhook-timestamp",
    description: "Unix seconds (Standard Webhooks).",
    example: "1773480413",
  },
  {
    name: "webhook-signature",
    description: "`v1,<base64>` (Standard Webhooks).",
    example: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
  },
].map((header) => ({
  ...header,
  in: "header" as const,
  required: true,
  schema: { type: "string" as const },
}));

/** Serves the OpenAPI 3.1 document of `app` at `/openapi.json`; it is made when first asked for. */
export function serveDocument(app: OpenAPIHono<AppEnv>): void {
  let document: object | undefined;
  app.openAPIRegistry.registerComponent("securitySchemes", "apiKey", {
    type: "http",
    scheme: "bearer",
    description: "An API key of the workspace, `key_live_` and 32 characters.",
  });
  for (const shape of WebhookDelivery.options) registerDelivery(app, shape);
  app.get("/openapi.json", (c) => {
    document ??= buildDocument(app);
    return c.json(document);
  });
}

/** The OpenAPI document of `app`. */
function buildDocument(app: OpenAPIHono<AppEnv>) {
  return app.getOpenAPI31Document({
    openapi: "3.1.0",
    info: {
      title: "Public API",
      version: CONTRACT_VERSION,
      description: introduction(),
      license: { name: "MIT", url: "https://spdx.org/licenses/MIT.html" },
    },
    servers: [{ url: "/", description: "This deployment" }],
    security: [{ apiKey: [] }],
    tags: [
      { name: "Automations", description: "Read them, pause them, activate them." },
      { name: "Leads", description: "People that the automations captured." },
      { name: "Runs", description: "What the automations did." },
      { name: "Webhooks", description: "Subscriptions, and the deliveries that they get." },
    ],
  });
}

const DELIVERIES: Record<WebhookEvent, { summary: string; operationId: string }> = {
  "lead.created": { operationId: "onLeadCreated", summary: "A new lead was captured" },
  "run.completed": { operationId: "onRunCompleted", summary: "An automation run finished" },
  "automation.status_changed": {
    operationId: "onAutomationStatusChanged",
    summary: "An automation was activated or paused",
  },
};

function registerDelivery(
  app: OpenAPIHono<AppEnv>,
  schema: (typeof WebhookDelivery.options)[number],
): void {
  const type: WebhookEvent = schema.shape.type.value;
  app.openAPIRegistry.registerWebhook({
    method: "post",
    path: type,
    tags: ["Webhooks"],
    ...DELIVERIES[type],
    description:
      "Posted to each active subscription that lists this kind. The same event can come again: deduplicate by `id`.",
    security: [],
    parameters: SIGNATURE_HEADERS,
    request: {
      body: { required: true, content: { "application/json": { schema: schema as z.ZodType } } },
    },
    responses: {
      "2XX": { description: "Received. Anything else, or no answer in 10 s, is tried again." },
      "4XX": { description: "Not received: tried again, with increasing waits." },
    },
  });
}
