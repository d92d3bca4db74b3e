import type { Context } from "hono";
import { WEBHOOKS_LIST } from "../../contract/cursor.ts";
import { ApiError, type Reason } from "../../contract/errors.ts";
import { isId, randomId } from "../../contract/ids.ts";
import { parseEncryptionKeys, seal } from "../../contract/seal.ts";
import { commit, withoutRetries } from "../../db/client.ts";
import { wake } from "../../delivery/wake.ts";
import {
  deleteSubscription,
  insertSubscription,
  listSubscriptions,
  toWebhook,
} from "../../model/subscriptions.ts";
import { mustCheckNames, resolveHost } from "../../webhooks/resolve.ts";
import { mintSecret } from "../../webhooks/signature.ts";
import { targetFault } from "../../webhooks/target.ts";
import { readBody } from "./body.ts";
import { type AppEnv, createApp } from "./context.ts";
import { parsePageRequest, toPage } from "./paging.ts";
import { served } from "./served.ts";

export const webhooks = createApp();

webhooks.post("/webhooks", served("webhooks"), createWebhook);

webhooks.get("/webhooks", served("webhooks"), async (c) => {
  const request = parsePageRequest(c, WEBHOOKS_LIST);
  const found = await listSubscriptions(c.get("db"), c.get("workspaceId"), request);
  return c.json(toPage(WEBHOOKS_LIST, found), 200);
});

webhooks.delete("/webhooks/:id", served("webhooks"), (c) => deleteWebhook(c, c.req.param("id")));

/** Creates a subscription. Its secret is shown only in this answer. */
export async function createWebhook(c: Context<AppEnv>): Promise<Response> {
  const { url, events } = await readBody(c, "WebhookCreation");
  const fault = await findFault(c.env, url);
  if (fault) throw new ApiError("invalid_request", { parameter: "url", reason: fault });
  const id = randomId("webhook");
  const secret = mintSecret();
  const row = {
    id,
    workspaceId: c.get("workspaceId"),
    url,
    events: [...new Set(events)],
    sealedSecret: await seal(parseEncryptionKeys(c.env.WEBHOOK_ENCRYPTION_KEYS), id, secret),
    createdAt: Date.now(),
  };
  const { isThere, max } = await commit(c.get("db"), insertSubscription(row));
  if (!isThere)
    throw new ApiError("invalid_request", { reason: "subscription_limit_reached", max });
  return c.json({ ...toWebhook({ ...row, disabledAt: null }), secret }, 201);
}

/** Deletes a subscription of the workspace. */
export async function deleteWebhook(c: Context<AppEnv>, id: string): Promise<Response> {
  if (!isId("webhook", id)) throw new ApiError("webhook_not_found");
  const deletion = deleteSubscription(c.get("workspaceId"), id, Date.now());
  // Not retried: if the reply was lost, a second try would wrongly answer 404.
  const { found, left } = await commit(withoutRetries(c.get("db")), deletion);
  if (!found) throw new ApiError("webhook_not_found");
  if (left)
    c.executionCtx.waitUntil(
      wake(c.env, c.get("home").database, [{ subscriptionId: id, lane: "slow" }]),
    );
  return c.body(null, 204);
}

/**
 * Why we refuse a subscription's URL, by our policy or, if a resolver is set, by DNS; null if we
 * accept it.
 */
async function findFault(env: Env, url: string): Promise<Reason | null> {
  const fault = targetFault(url, env.ALLOW_LOCAL_WEBHOOKS === "true");
  if (fault || !mustCheckNames(env)) return fault;
  const { resolution } = await resolveHost(env.DNS_OVER_HTTPS_URL, url);
  if (resolution === "private") return "private_address";
  return resolution === "unresolvable" ? "unresolvable_host" : null;
}
