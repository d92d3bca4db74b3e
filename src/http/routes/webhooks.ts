import { createRoute, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { WebhookEvent } from "../../contract/enumerations.ts";
import { ApiError, type Reason } from "../../contract/errors.ts";
import { isId, randomId } from "../../contract/ids.ts";
import { STOPS_WITHIN_MS, SUBSCRIPTIONS_MAX, URL_MAX_LENGTH } from "../../contract/limits.ts";
import { commit, withoutRetries } from "../../db/client.ts";
import type { ChangedFields } from "../../db/schema.ts";
import { sendWakeUps } from "../../delivery/wake.ts";
import { type CustomHeaders, sealHeadersUnder } from "../../endpoints/headers.ts";
import { findDnsFault, readTarget } from "../../endpoints/resolve.ts";
import { openSecret, sealSecret } from "../../endpoints/secrets.ts";
import { mintSecret } from "../../endpoints/signature.ts";
import { runForKey } from "../../platform/invoke.ts";
import type { NoteChange } from "../../platform/operation.ts";
import {
  type CreatedSubscription,
  insertSubscription,
  requestedFields,
  selectCreated,
} from "../../subscriptions/creation.ts";
import { showFields } from "../../subscriptions/fields.ts";
import {
  deleteSubscription,
  listSubscriptions,
  toWebhook,
  Webhook,
} from "../../subscriptions/subscriptions.ts";
import { loadDataKeyToWrite } from "../../workspaces/data-keys.ts";
import { jsonBody } from "../body.ts";
import { type AppEnv, newApp, served } from "../context.ts";
import { listOrder, PageQuery, pageSchema, toPageBody, toPageRequest } from "../paging.ts";
import { body, empty, errors, json } from "../responses.ts";
import { CREATION, PAGES, SECRET, WEBHOOK } from "./examples.ts";

export const webhookRoutes = newApp();

/** The body of a request to subscribe; `subscribe` checks the URL. */
export const WebhookCreation = z
  .strictObject({
    url: z.string().openapi({
      format: "uri",
      maxLength: URL_MAX_LENGTH,
      description:
        "The URL to send events to: HTTPS, on the public internet, without a user name or password. Use a host name, because deliveries do not reach an IP address.",
      example: "https://hooks.example.com/automations",
    }),
    events: z
      .array(WebhookEvent)
      .min(1)
      .openapi({
        description: "The event types to receive, at least one. Duplicates are ignored.",
        example: ["lead.created"],
      }),
  })
  .openapi("WebhookCreation", { description: "The webhook to create." });

export const IDEMPOTENCY_KEY = "idempotency-key";
/** Length of an `Idempotency-Key`, in characters. */
export const KEY_LENGTH = { min: 1, max: 255 };

export const CreationHeaders = z.object({
  [IDEMPOTENCY_KEY]: z
    .string()
    .refine((key) => /^[\x21-\x7e]{1,255}$/.test(key), {
      params: { reason: "out_of_range", ...KEY_LENGTH },
    })
    .optional()
    .openapi({
      minLength: KEY_LENGTH.min,
      maxLength: KEY_LENGTH.max,
      param: {
        description:
          "A string of your choice, different for each new webhook: 1 to 255 visible ASCII characters. If you lose the response, send the same request with the same key within 24 h to get the same webhook, with its secret.",
      },
    }),
});

/** A new subscription with its secret, which no other response shows. */
const WebhookWithSecret = z
  .object({
    ...Webhook.shape,
    secret: z.string().openapi({
      description:
        "The signing key of this webhook's deliveries. Store it now, because it is not shown again.",
      example: SECRET,
    }),
  })
  .openapi("WebhookWithSecret", { description: "A newly created webhook." });

export type WebhookWithSecret = z.infer<typeof WebhookWithSecret>;

webhookRoutes.openapi(
  createRoute({
    method: "post",
    path: "/webhooks",
    operationId: "createWebhook",
    tags: ["Webhooks"],
    summary: "Subscribe to events",
    description: `From then on, events of the types that you list are sent to your URL, signed with the \`secret\` in the response. Store it, because it is not shown again. A workspace has at most ${SUBSCRIPTIONS_MAX} webhooks, unless agreed otherwise. Without an \`Idempotency-Key\`, sending it twice creates two.`,
    middleware: [served("webhooks"), jsonBody],
    request: { headers: CreationHeaders, body: body(WebhookCreation, CREATION) },
    responses: {
      201: json(WebhookWithSecret, "The webhook, with its secret.", {
        ...WEBHOOK,
        secret: SECRET,
      }),
      ...errors("InvalidSubscription", "BodyTooLarge", "UnsupportedMediaType"),
    },
    callbacks: { event: { $ref: "#/components/callbacks/event" } },
  }),
  async (c) => {
    const { [IDEMPOTENCY_KEY]: key } = c.req.valid("header");
    const created = await runWithKey(c, "createWebhook", (noteChange) =>
      subscribe(c, c.req.valid("json"), key, noteChange),
    );
    return c.json(created, 201);
  },
);

const WebhookPage = pageSchema(Webhook, "WebhookPage", "webhooks");

webhookRoutes.openapi(
  createRoute({
    method: "get",
    path: "/webhooks",
    operationId: "listWebhooks",
    tags: ["Webhooks"],
    summary: "List the webhooks of the workspace",
    description: `${listOrder("`created_at`")} Secrets are not included.`,
    middleware: served("webhooks"),
    request: { query: PageQuery },
    responses: {
      200: json(WebhookPage, "A page of webhooks, newest first.", PAGES.webhooks),
      ...errors("InvalidQuery"),
    },
  }),
  async (c) => {
    const request = toPageRequest("webhooks", c.req.valid("query"));
    const found = await c.get("readAdmitted")((db) =>
      listSubscriptions(db, c.get("workspaceId"), request),
    );
    return c.json(toPageBody("webhooks", found), 200);
  },
);

/** The path of one subscription. Any text is valid; one that is not an id gives 404. */
const WebhookParams = z.object({
  id: z.string().openapi({
    param: {
      description: "The webhook's `id`, which starts with `whk_`.",
      example: WEBHOOK.id,
    },
  }),
});

webhookRoutes.openapi(
  createRoute({
    method: "delete",
    path: "/webhooks/{id}",
    operationId: "deleteWebhook",
    tags: ["Webhooks"],
    summary: "Remove a webhook",
    description: `Pending deliveries are cancelled. A request may still start up to ${STOPS_WITHIN_MS / 1000} s later. Deleting the webhook again gives 404.`,
    middleware: served("webhooks"),
    request: { params: WebhookParams },
    responses: {
      204: empty("The webhook is deleted."),
      ...errors("WebhookNotFound"),
    },
  }),
  async (c) => {
    const { id } = c.req.valid("param");
    await runWithKey(c, "deleteWebhook", async (noteChange) => {
      await noteChange({ webhookId: id });
      await noteChange({ webhookId: id, before: await unsubscribe(c, id) });
    });
    return c.body(null, 204);
  },
);

/** Runs a change of a subscription for an API key, and notes it in the audit trail. */
function runWithKey<Result>(
  c: Context<AppEnv>,
  method: string,
  run: (noteChange: NoteChange) => Promise<Result>,
): Promise<Result> {
  const { env, executionCtx: ctx } = c;
  return runForKey({ env, ctx }, method, c.var, run);
}

/** A subscription to create. Only the portal gives it a description and custom headers. */
interface Creation extends z.output<typeof WebhookCreation> {
  description?: string | undefined;
  headers?: CustomHeaders | undefined;
}

/**
 * Creates a subscription of the workspace. Its secret is shown only in this response, and in the response to the same
 * request with the same `Idempotency-Key`, which notes no change of its own.
 */
export async function subscribe(
  c: Context<AppEnv>,
  creation: Creation,
  idempotencyKey: string | null = null,
  noteChange: NoteChange,
): Promise<WebhookWithSecret> {
  const { db } = c.get("placement");
  const workspaceId = c.get("workspaceId");
  const keyId = c.get("keyId");
  const createdAt = Date.now();
  const target = readTarget(c.env, creation.url);
  if (typeof target === "string") throw invalidUrl(target);
  const id = randomId("webhook");
  const { description = null, headers = {} } = creation;
  const dataKey = await loadDataKeyToWrite(db, c.env.ENCRYPTION_KEYS, workspaceId);
  const fields = {
    id,
    workspaceId,
    url: target.uri,
    events: [...new Set(creation.events)],
    description,
    ...(await sealHeadersUnder(dataKey, { subscriptionId: id }, headers)),
  };
  const wanted = requestedFields(fields);
  // A transaction fails if access has ended since the admission, so no secret is shown then.
  const { earlier } = await commit(db, {
    earlier:
      idempotencyKey === null
        ? undefined
        : selectCreated(workspaceId, { idempotencyKey, keyId }, createdAt),
  });
  if (earlier) return showSecret(dataKey, wanted, earlier);
  const fault = await findDnsFault(c.env, target);
  if (fault) throw invalidUrl(fault);
  const sealedSecret = await sealSecret(dataKey, id, mintSecret());
  const { headerNames: names, url, events } = fields;
  const shown = { url, events, ...(description && { description }), headers: names };
  await noteChange({ webhookId: id, after: shown });
  const row = { ...fields, sealedSecret, createdAt };
  const { stored, max } = await commit(db, insertSubscription(row, { idempotencyKey, keyId }));
  if (!stored) throw new ApiError("invalid_request", { reason: "subscription_limit_reached", max });
  // Another request with the same `Idempotency-Key` has just created it, and noted this.
  if (stored.id !== id) await noteChange(null);
  return showSecret(dataKey, wanted, stored);
}

function invalidUrl(reason: Reason): ApiError {
  return new ApiError("invalid_request", { parameter: "url", reason });
}

/**
 * Returns the subscription of a request with its secret. An earlier request with the same `Idempotency-Key` may have
 * created it.
 *
 * @throws ApiError if the earlier request was a different one.
 */
async function showSecret(
  dataKey: CryptoKey,
  wanted: ReturnType<typeof requestedFields>,
  stored: CreatedSubscription,
): Promise<WebhookWithSecret> {
  const requested = stored.requested ?? wanted;
  const sorted = ({ events, ...others }: typeof wanted) =>
    JSON.stringify({ ...others, events: events.toSorted() });
  if (sorted(requested) !== sorted(wanted))
    throw new ApiError("invalid_request", {
      parameter: IDEMPOTENCY_KEY,
      reason: "idempotency_key_reused",
    });
  const secret = await openSecret(dataKey, stored.id, stored.sealedSecret);
  // The response repeats the first one, although the URL and the events may have changed since.
  return { ...toWebhook({ ...stored, ...requested, disabledAt: null }), secret };
}

/** Deletes a subscription of the workspace. Returns what it was. @throws ApiError if there is none. */
export async function unsubscribe(c: Context<AppEnv>, id: string): Promise<ChangedFields> {
  if (!isId("webhook", id)) throw new ApiError("webhook_not_found");
  c.set("webhookId", id);
  const deletion = deleteSubscription(c.get("workspaceId"), id, Date.now());
  // The deletion is tried once. If its reply was lost, a second try would wrongly give 404.
  const { db, database } = c.get("placement");
  const { fields, wakeUps } = await commit(withoutRetries(db), deletion);
  if (!fields) throw new ApiError("webhook_not_found");
  c.executionCtx.waitUntil(sendWakeUps(c.env, database, wakeUps));
  return showFields(fields);
}
