import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import { ApiError, type Reason } from "../contract/errors.ts";
import { isId, randomId } from "../contract/ids.ts";
import { SUBSCRIPTIONS_MAX, URL_MAX_LENGTH } from "../contract/limits.ts";
import { Webhook, WebhookEvent, WebhookWithSecret } from "../contract/resources.ts";
import { commit } from "../db/client.ts";
import { mustCheckNames, resolveHost } from "../delivery/resolve.ts";
import { readKeyRing, seal } from "../delivery/seal.ts";
import { mintSecret } from "../delivery/signature.ts";
import { targetFault } from "../delivery/target.ts";
import { wake } from "../delivery/wake.ts";
import {
  deleteSubscription,
  insertSubscription,
  listSubscriptions,
  toWebhook,
  WEBHOOKS_LIST,
} from "../model/subscriptions.ts";
import { jsonBody } from "./body.ts";
import type { AppEnv } from "./context.ts";
import { refuseInvalid } from "./envelope.ts";
import { PageQuery, pageOf, readPageRequest } from "./paging.ts";
import { empty, errors, json } from "./responses.ts";
import { served } from "./served.ts";

export const webhooks = new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });

webhooks.openapi(
  createRoute({
    method: "post",
    path: "/webhooks",
    operationId: "createWebhook",
    tags: ["Webhooks"],
    summary: "Subscribe to events",
    description: `At most ${SUBSCRIPTIONS_MAX} subscriptions a workspace. The answer holds the signing secret; no other does.`,
    middleware: [served("webhooks"), jsonBody],
    request: {
      body: {
        required: true,
        content: {
          "application/json": {
            schema: z
              .strictObject({
                url: z.string().openapi({
                  format: "uri",
                  maxLength: URL_MAX_LENGTH,
                  description: "HTTPS, a public host, no credentials.",
                  example: "https://hooks.example.com/automations",
                }),
                events: z
                  .array(WebhookEvent)
                  .min(1)
                  .openapi({ description: "Duplicates collapse." }),
              })
              .openapi("WebhookCreation"),
          },
        },
      },
    },
    responses: {
      201: json("The subscription, with its secret.", WebhookWithSecret),
      ...errors(["invalid_request"], true),
    },
  }),
  async (c) => {
    const { url, events } = c.req.valid("json");
    const fault = await findFault(c.env, url);
    if (fault) throw new ApiError("invalid_request", { parameter: "url", reason: fault });
    const id = randomId("webhook");
    const secret = mintSecret();
    const row = {
      id,
      workspaceId: c.get("workspaceId"),
      url,
      events: [...new Set(events)],
      sealedSecret: await seal(readKeyRing(c.env.WEBHOOK_ENCRYPTION_KEYS), id, secret),
      createdAt: Date.now(),
    };
    if (!(await commit(c.get("db"), insertSubscription(row))))
      throw new ApiError("invalid_request", {
        reason: "subscription_limit_reached",
        max: SUBSCRIPTIONS_MAX,
      });
    return c.json({ ...toWebhook({ ...row, disabledAt: null }), secret }, 201);
  },
);

webhooks.openapi(
  createRoute({
    method: "get",
    path: "/webhooks",
    operationId: "listWebhooks",
    tags: ["Webhooks"],
    summary: "List the subscriptions of the workspace",
    middleware: [served("webhooks")],
    request: { query: PageQuery },
    responses: {
      200: json("A page of subscriptions, newest first.", pageOf(Webhook, "WebhookPage")),
      ...errors(["invalid_request"]),
    },
  }),
  async (c) => {
    const request = readPageRequest(WEBHOOKS_LIST, c.req.valid("query"));
    return c.json(await listSubscriptions(c.get("db"), c.get("workspaceId"), request), 200);
  },
);

webhooks.openapi(
  createRoute({
    method: "delete",
    path: "/webhooks/{id}",
    operationId: "deleteWebhook",
    tags: ["Webhooks"],
    summary: "Remove a subscription",
    description: "What it was still owed is cancelled. Deleting twice answers 404.",
    middleware: [served("webhooks")],
    request: {
      params: z.object({
        id: z.string().openapi({
          param: { name: "id", in: "path" },
          description: "Opaque, starts with `whk_`.",
          example: "whk_0q2m5x8c1v7b4n9k3j6h0g2f5",
        }),
      }),
    },
    responses: {
      204: empty("The subscription is deleted."),
      ...errors(["webhook_not_found"]),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    if (!isId("webhook", id)) throw new ApiError("webhook_not_found");
    const deletion = deleteSubscription(c.get("workspaceId"), id, Date.now());
    // Once: a try after a lost reply would find nothing, and take that for an unknown one.
    const { found, left } = await commit(c.get("db"), deletion, 1);
    if (!found) throw new ApiError("webhook_not_found");
    if (left) c.executionCtx.waitUntil(wake(c.env, [{ subscriptionId: id, lane: "slow" }]));
    return c.body(null, 204);
  },
);

/** What speaks against a subscription's URL, by the policy and, where there is a resolver, by DNS. */
async function findFault(env: Env, url: string): Promise<Reason | null> {
  const fault = targetFault(url, env.ALLOW_LOCAL_WEBHOOKS === "true");
  if (fault || !mustCheckNames(env)) return fault;
  const { resolution } = await resolveHost(env.DNS_OVER_HTTPS_URL, url);
  if (resolution === "private") return "private_address";
  return resolution === "unresolvable" ? "unresolvable_host" : null;
}
