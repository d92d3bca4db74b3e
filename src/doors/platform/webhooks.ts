import { InputError } from "../../contract/input-error.ts";
import { SECRET_OVERLAP_SECONDS } from "../../contract/limits.ts";
import { parseEncryptionKeys } from "../../contract/seal.ts";
import { commit } from "../../db/client.ts";
import { allHomes, findHome, findHomeOfWebhook } from "../../db/homes.ts";
import { wake } from "../../delivery/wake.ts";
import { listHealth, unknownWebhook } from "../../model/health.ts";
import { enableAgain } from "../../model/redelivery.ts";
import {
  deleteAnySubscription,
  disableSubscription,
  findSubscription,
} from "../../model/subscriptions.ts";
import { type Resealed, resealSecrets } from "../../webhooks/reseal.ts";
import { rotateSecret } from "../../webhooks/rotation.ts";
import { sendTestEvent } from "../../webhooks/test-event.ts";
import { expectWorkspace, openHomeOfWebhook } from "./homes.ts";
import type { Call, Methods } from "./methods.ts";

/** Maximum number of secrets and data keys that one call of `resealSecrets` re-encrypts. */
const RESEALED_MAX = 100;

/** The methods that concern webhook subscriptions and their secrets. */
export const webhookMethods = {
  /** Lists the subscriptions of a workspace, newest first, with their health. */
  async listWebhooks({ env }, { workspaceId }) {
    const { db } = await findHome(env, workspaceId);
    const items = await listHealth(db, workspaceId);
    if (items.length === 0) await expectWorkspace(env, workspaceId);
    return { items, nextCursor: null };
  },

  /**
   * Makes a disabled subscription active again. With `redeliverSince`, it also receives what it has
   * missed since then, oldest first, a few events a second.
   *
   * @returns how many events are about to be sent, and whether there may be more.
   */
  async enableWebhook({ env, ctx }, { webhookId, redeliverSince }) {
    const home = await openHomeOfWebhook(env, webhookId);
    const since = redeliverSince ?? null;
    const { lane, ...owed } = await enableAgain(home.db, webhookId, since, Date.now());
    if (since !== null)
      ctx.waitUntil(wake(env, home.database, [{ subscriptionId: webhookId, lane }]));
    return owed;
  },

  /** Posts a labelled sample event to a subscription, once, and returns how its server answered. */
  async sendTestEvent({ env }, { webhookId, type }) {
    const now = Date.now();
    const { db } = await findHomeOfWebhook(env, webhookId);
    const subscription = await findSubscription(db, webhookId, now);
    if (!subscription.accessGranted) throw new InputError("webhookId: its workspace has no access");
    return sendTestEvent(env, subscription, type, now);
  },

  /** Disables a subscription and cancels its pending deliveries. */
  async disableWebhook(call, { webhookId }) {
    const home = await openHomeOfWebhook(call.env, webhookId);
    const { found, left } = await commit(home.db, disableSubscription(webhookId, Date.now()));
    if (!found) throw unknownWebhook();
    if (left) wakeToCancel(call, home.database, webhookId);
    return {};
  },

  /** Deletes a subscription and cancels its pending deliveries. An unknown id is ignored. */
  async deleteWebhook(call, { webhookId }) {
    const home = await openHomeOfWebhook(call.env, webhookId);
    const { left } = await commit(home.db, deleteAnySubscription(webhookId, Date.now()));
    if (left) wakeToCancel(call, home.database, webhookId);
    return {};
  },

  /**
   * Gives a subscription a new secret, which only this answer contains. Until the overlap ends,
   * deliveries are also signed with the old secret.
   */
  async rotateWebhookSecret({ env }, { webhookId, overlapSeconds }) {
    const overlap = overlapSeconds ?? SECRET_OVERLAP_SECONDS.default;
    const home = await openHomeOfWebhook(env, webhookId);
    return rotateSecret(home.db, env.WEBHOOK_ENCRYPTION_KEYS, webhookId, overlap, Date.now());
  },

  /**
   * Re-encrypts up to 100 secrets of subscriptions and data keys of workspaces under the first of
   * `WEBHOOK_ENCRYPTION_KEYS`. Once none remain, the other keys can be removed. Those that no key can
   * decrypt are counted as unreadable, and the log names their subscriptions and workspaces.
   */
  async resealSecrets({ env }) {
    const ring = parseEncryptionKeys(env.WEBHOOK_ENCRYPTION_KEYS);
    const total: Resealed = { resealed: 0, remaining: 0, unreadable: 0 };
    for (const { db } of allHomes(env)) {
      const counts = await resealSecrets(db, ring, RESEALED_MAX - total.resealed);
      total.resealed += counts.resealed;
      total.remaining += counts.remaining;
      total.unreadable += counts.unreadable;
    }
    return total;
  },
} satisfies Partial<Methods>;

function wakeToCancel({ env, ctx }: Call, database: string, subscriptionId: string): void {
  ctx.waitUntil(wake(env, database, [{ subscriptionId, lane: "slow" }]));
}
