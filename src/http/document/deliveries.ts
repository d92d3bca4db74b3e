import type { OpenAPIHono } from "@hono/zod-openapi";
import type { WebhookEvent } from "../../contract/enumerations.ts";
import { EVENT_TYPES, mapEventTypes, schemaName } from "../../contract/event-types.ts";
import { POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { TEST_HEADER, WEBHOOK_HEADER } from "../../delivery/post.ts";
import { signatureHeaders } from "../../endpoints/signature.ts";
import { WebhookDelivery } from "../../events/bodies.ts";
import { DELIVERIES } from "../../events/samples.ts";
import { SECRET, WEBHOOK } from "../routes/examples.ts";

type Registry = OpenAPIHono["openAPIRegistry"];

const HEADERS: Record<string, string> = {
  [WEBHOOK_HEADER]:
    "The `id` of the webhook. Use it to pick the secret if several webhooks share a URL. This header is not covered by the signature.",
  "X-Service-Signature":
    "`t=<unix seconds>,v1=<hex>`: the HMAC-SHA256 of `{t}.{raw body}`, keyed with the whole secret, `whsec_` included. While a secret is being rotated, there are several `v1` (`t=…,v1=…,v1=…`) in any order. Accept the delivery if one of them is valid. Reject a `t` more than 5 min from your clock.",
  "webhook-id": "The `id` of the event, for Standard Webhooks libraries.",
  "webhook-timestamp": "Unix seconds, for Standard Webhooks libraries.",
  "webhook-signature":
    "`v1,<base64>`, for Standard Webhooks libraries; several, separated by spaces, while a secret is being rotated.",
};

/** The header of a test event, as a parameter. */
const TEST_PARAMETERS = Object.keys(TEST_HEADER).map((name) => ({
  name,
  in: "header" as const,
  required: false,
  description:
    "Only on a test event, whose record is invented. Verify the delivery, respond with a 2xx, and do not process the event. This header is not covered by the signature.",
  schema: { type: "string" as const },
}));

const HOW = `Verify the signature, deduplicate by \`id\`, and respond with any 2xx within ${POST_TIMEOUT_MS / 1000} s.`;

const RESPONSES = {
  "2XX": { description: "Received. The body is ignored." },
  "4XX": {
    description:
      "Not received. Anything other than a timely 2xx is a failure, whatever its status, and the event is sent again (see the guide on retries).",
  },
};

/** The headers of every delivery as parameters, with values that sign the example event. */
async function headerParameters(event: (typeof DELIVERIES)[WebhookEvent]) {
  const sentAt = Date.parse(event.created_at) + 1_000;
  const signed = await signatureHeaders(SECRET, event.id, JSON.stringify(event), sentAt);
  const values: Record<string, string> = { [WEBHOOK_HEADER]: WEBHOOK.id, ...signed };
  return Object.entries(HEADERS).map(([name, description]) => ({
    name,
    in: "header" as const,
    required: true,
    description,
    schema: { type: "string" as const },
    example: values[name],
  }));
}

/** Registers the document's webhooks, one for each event type. */
export async function registerWebhooks(registry: Registry): Promise<void> {
  for (const schema of WebhookDelivery.options) {
    const type = schema.shape.type.value;
    const event = DELIVERIES[type];
    const { summary, when } = EVENT_TYPES[type];
    registry.registerWebhook({
      method: "post",
      path: type,
      tags: ["Webhooks"],
      operationId: `on${schemaName(type)}`,
      summary,
      description: `Sent ${when}. ${HOW}`,
      security: [],
      parameters: [...(await headerParameters(event)), ...TEST_PARAMETERS],
      request: {
        body: { required: true, content: { "application/json": { schema, example: event } } },
      },
      responses: RESPONSES,
    });
  }
}

/** Registers the callback of a subscription: the events that are sent to its URL. */
export function registerCallback(registry: Registry): void {
  const examples = mapEventTypes(({ summary }, type) => ({ summary, value: DELIVERIES[type] }));
  const post = {
    operationId: "onEvent",
    tags: ["Webhooks"],
    summary: "An event that the webhook lists",
    description: `One request for each event. \`type\` determines the shape of \`data\`. The headers are the same as for the webhooks below. ${HOW}`,
    security: [],
    requestBody: {
      required: true,
      content: {
        "application/json": {
          schema: { $ref: "#/components/schemas/WebhookDelivery" },
          examples,
        },
      },
    },
    responses: RESPONSES,
  };
  registry.register("WebhookDelivery", WebhookDelivery);
  registry.registerComponent("callbacks", "event", { "{$request.body#/url}": { post } });
}
