import { z } from "@hono/zod-openapi";
import { encodeCursor } from "../contract/cursor.ts";
import { WebhookEvent } from "../contract/enumerations.ts";
import { WebhookId, WorkspaceId } from "../contract/fields.ts";
import { InputError } from "../contract/input-error.ts";
import {
  DESCRIPTION_MAX_LENGTH,
  HEADERS_MAX,
  REDELIVERY_MAX_AGE_MS,
  SECRET_OVERLAP_SECONDS,
  URL_MAX_LENGTH,
} from "../contract/limits.ts";
import { label } from "../contract/text.ts";
import { DAY_MS } from "../contract/time.ts";
import { commit, type Database, query, withoutRetries } from "../db/client.ts";
import { openDirectory } from "../db/databases.ts";
import { postTestEvent } from "../delivery/test-event.ts";
import { wake } from "../delivery/wake.ts";
import { parseEncryptionKeys } from "../encryption/seal.ts";
import { readCounts, toDays } from "../history/counts.ts";
import {
  findSubscriptionHealth,
  findUndeliveredSince,
  listSubscriptionHealth,
} from "../history/subscription-health.ts";
import {
  NewSecret,
  Redelivered,
  TestResult,
  WebhookDetails,
  WebhookView,
} from "../history/views.ts";
import { enableAgain, REDELIVERY_EXAMINED_MAX } from "../replay/redelivery.ts";
import { isSubscription } from "../subscriptions/conditions.ts";
import { OwnHeaders, sealHeaders } from "../subscriptions/headers.ts";
import { findUrlFault } from "../subscriptions/resolve.ts";
import { endOverlap, rotateSecret } from "../subscriptions/rotation.ts";
import {
  deleteSubscription,
  disableSubscription,
  findSubscription,
  updateSubscription,
} from "../subscriptions/subscriptions.ts";
import { toUri } from "../subscriptions/target.ts";
import { labelKeys } from "../workspaces/api-keys.ts";
import { allPlacements } from "../workspaces/placement.ts";
import { Resealed, resealUpTo } from "../workspaces/rewrap.ts";
import { cursorOf, integer, Nothing, pageOf, RedeliverableSince } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectWorkspace, findWebhook, locateWebhook } from "./placements.ts";

const webhookId = "whk_…";
const ofWebhook = z.strictObject({ webhookId: WebhookId });

export const listWebhooks = operation({
  about: "Lists a workspace's subscriptions, newest first, with their health.",
  input: z.strictObject({ workspaceId: WorkspaceId }),
  output: pageOf(WebhookView),
  examples: [{ workspaceId: "wks_…" }],
  async run({ env, placement }, { workspaceId }) {
    const { db } = placement ?? (await expectWorkspace(env, workspaceId));
    const items = await listSubscriptionHealth(db, workspaceId);
    return { items, nextCursor: null };
  },
});

export const readWebhook = operation({
  about: "Shows a subscription with its health, and counts its deliveries of the last days.",
  input: ofWebhook,
  output: WebhookDetails,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db } = await findWebhook(call, webhookId);
    const now = Date.now();
    const [view, counts, undeliveredSince] = await Promise.all([
      findSubscriptionHealth(db, webhookId),
      query(db, readCounts(isSubscription(webhookId), now)),
      findUndeliveredSince(db, webhookId),
    ]);
    const keyLabel =
      view.keyId && (await labelKeys(openDirectory(call.env), [view.keyId]))[view.keyId];
    return { ...view, keyLabel: keyLabel ?? null, days: toDays(counts, now), undeliveredSince };
  },
});

export const updateWebhook = operation({
  about:
    "Changes a subscription's URL, events, description or own headers. Its secret and history stay. Pending deliveries go to the new URL, and to the old one none that starts later than 2 s after. Events recorded before are still sent; those of a kind that it no longer lists are not sent again.",
  input: z
    .strictObject({
      webhookId: WebhookId,
      url: z.string().max(URL_MAX_LENGTH).nullish().describe("as at its creation"),
      events: z.array(WebhookEvent).min(1).nullish(),
      description: label(DESCRIPTION_MAX_LENGTH).nullish().describe("null or empty: none"),
      headers: OwnHeaders.nullish().describe(
        `sent with each post, by name; at most ${HEADERS_MAX}; null: none. They replace the present ones, and are not shown again`,
      ),
    })
    .refine(
      ({ url, events, description, headers }) =>
        url != null || events != null || description !== undefined || headers !== undefined,
      "expected a URL, events, a description or headers",
    ),
  output: Nothing,
  examples: [
    { webhookId, url: "https://hooks.example.com/automations" },
    { webhookId, events: ["lead.created"], description: "CRM import" },
    { webhookId, headers: { Authorization: "Bearer token" } },
  ],
  async run(call, { webhookId, url, events, description, headers }) {
    const placement = await findWebhook(call, webhookId);
    const { db, database } = placement;
    const fault = url == null ? null : await findUrlFault(call.env, url);
    if (fault) throw new InputError("url", `is refused: ${fault}`, { reason: fault });
    const sealed = headers === undefined ? {} : await seal(call.env, db, webhookId, headers ?? {});
    const updated = updateSubscription(webhookId, {
      ...(url == null ? {} : { url: toUri(url) }),
      ...(events ? { events: [...new Set(events)] } : {}),
      ...(description === undefined ? {} : { description: description || null }),
      ...sealed,
    });
    // Not retried: a second try would undo what somebody else changed in between.
    await commit(withoutRetries(db), updated);
    if (url != null)
      call.ctx.waitUntil(wake(call.env, database, [{ subscriptionId: webhookId, lane: "fast" }]));
    return {};
  },
});

async function seal(env: Env, db: Database, subscriptionId: string, headers: OwnHeaders) {
  const owner = await findSubscription(db, subscriptionId, Date.now());
  return sealHeaders(env, { ...owner, subscriptionId }, headers);
}

export const enableWebhook = operation({
  about: `Re-enables a disabled subscription. With redeliverSince, each call examines up to ${REDELIVERY_EXAMINED_MAX} events: call it until nextCursor is null.`,
  input: z.strictObject({
    webhookId: WebhookId,
    redeliverSince: RedeliverableSince.nullish().describe(
      `also delivers events recorded since this time that it did not get, at most ${REDELIVERY_MAX_AGE_MS / DAY_MS} days ago; readWebhook says since when: undeliveredSince`,
    ),
    cursor: cursorOf("redelivery").describe("the previous call's nextCursor"),
  }),
  output: Redelivered,
  examples: [{ webhookId }],
  async run(call, { webhookId, redeliverSince, cursor }) {
    const placement = await findWebhook(call, webhookId);
    const since = redeliverSince ?? null;
    const now = Date.now();
    const { count, next, lane } = await enableAgain(placement.db, webhookId, since, now, cursor);
    if (since !== null)
      call.ctx.waitUntil(wake(call.env, placement.database, [{ subscriptionId: webhookId, lane }]));
    return { count, nextCursor: next && encodeCursor("redelivery", next) };
  },
});

export const sendTestEvent = operation({
  about:
    "Posts one sample event, marked as a test, and shows whether the receiver accepted it. `readDelivery` shows all that was sent and answered.",
  input: z.strictObject({ webhookId: WebhookId, type: WebhookEvent }),
  output: TestResult,
  examples: [{ webhookId, type: "lead.created" }],
  async run(call, { webhookId, type }) {
    const now = Date.now();
    const { db } = await findWebhook(call, webhookId);
    const subscription = await findSubscription(db, webhookId, now);
    if (!subscription.accessGranted)
      throw new InputError("webhookId", "its workspace has no access");
    return postTestEvent(call.env, db, subscription, type, now);
  },
});

export const disableWebhook = operation({
  about: "Disables a subscription and cancels its pending deliveries.",
  input: ofWebhook,
  output: Nothing,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db, database } = await findWebhook(call, webhookId);
    const wakes = await commit(db, disableSubscription(webhookId, Date.now()));
    call.ctx.waitUntil(wake(call.env, database, wakes));
    return {};
  },
});

export const deleteWebhook = operation({
  about:
    "Deletes a subscription and cancels its pending deliveries. An unknown id is not an error.",
  input: ofWebhook,
  output: Nothing,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const found = await locateWebhook(call, webhookId);
    if (!found) return {};
    const { wakes } = await commit(found.db, deleteSubscription(null, webhookId, Date.now()));
    call.ctx.waitUntil(wake(call.env, found.database, wakes));
    return {};
  },
});

export const rotateWebhookSecret = operation({
  about:
    "Rotates a subscription's secret; both secrets sign until the overlap ends. The new one is shown only once; posts of the next 2 s may lack its signature, and are retried if they are refused.",
  input: z.strictObject({
    webhookId: WebhookId,
    overlapSeconds: integer(0, SECRET_OVERLAP_SECONDS.max)
      .nullish()
      .describe(
        `how long the old secret also signs; default: ${SECRET_OVERLAP_SECONDS.default / 3600} h; 0: not at all`,
      ),
  }),
  output: NewSecret,
  examples: [{ webhookId }, { webhookId, overlapSeconds: 3600 }],
  async run(call, { webhookId, overlapSeconds }) {
    const overlap = overlapSeconds ?? SECRET_OVERLAP_SECONDS.default;
    const placement = await findWebhook(call, webhookId);
    return rotateSecret(placement.db, call.env.ENCRYPTION_KEYS, webhookId, overlap, Date.now());
  },
});

export const endSecretOverlap = operation({
  about: "Ends the overlap of a rotated secret: only the newest secret signs from now on.",
  input: ofWebhook,
  output: Nothing,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db } = await findWebhook(call, webhookId);
    await commit(db, endOverlap(webhookId));
    return {};
  },
});

/** Maximum number of data keys that one call of `resealSecrets` re-encrypts. */
const RESEALED_MAX = 100;

export const resealSecrets = operation({
  about: `Re-encrypts the data keys of up to ${RESEALED_MAX} workspaces under the first encryption key. Once none remain, the other keys can be removed.`,
  input: z.strictObject({}),
  output: Resealed,
  examples: [{}],
  async run({ env }) {
    const ring = parseEncryptionKeys(env.ENCRYPTION_KEYS);
    const total = { resealed: 0, remaining: 0, unreadable: 0 };
    for (const { db } of allPlacements(env)) {
      const counts = await resealUpTo(db, ring, RESEALED_MAX - total.resealed);
      total.resealed += counts.resealed;
      total.remaining += counts.remaining;
      total.unreadable += counts.unreadable;
    }
    return total;
  },
});
