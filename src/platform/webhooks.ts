import { z } from "@hono/zod-openapi";
import { WebhookEvent } from "../contract/enumerations.ts";
import type { Reason } from "../contract/errors.ts";
import { WebhookId, WorkspaceId } from "../contract/fields.ts";
import { InputError } from "../contract/input.ts";
import {
  DESCRIPTION_MAX_LENGTH,
  HEADERS_MAX,
  REDELIVERY_MAX_AGE_MS,
  SECRET_OVERLAP_SECONDS,
  TEST_EVENTS_PER_MINUTE,
  URL_MAX_LENGTH,
} from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { commit, withoutRetries } from "../db/client.ts";
import { openDirectory } from "../db/databases.ts";
import { sendWakeUps, type WakeUp } from "../delivery/wake.ts";
import { parseEncryptionKeys } from "../encryption/seal.ts";
import { CustomHeaders } from "../endpoints/headers.ts";
import { findDnsFault, readTarget } from "../endpoints/resolve.ts";
import {
  findSubscriptionHealth,
  findUndeliveredSince,
  listSubscriptionHealth,
} from "../history/health.ts";
import {
  NewSecret,
  Redelivered,
  TestResult,
  WebhookDetails,
  WebhookView,
} from "../history/views.ts";
import { label } from "../primitives/text.ts";
import { enableAndReplay, inactiveWebhook, REDELIVERY_EXAMINED_MAX } from "../replay/replay.ts";
import {
  changeFields,
  diffFields,
  expectFields,
  findFields,
  findFieldsIfAny,
  showFields,
} from "../subscriptions/fields.ts";
import { endOverlap, rotateSecret } from "../subscriptions/rotation.ts";
import {
  deleteSubscription,
  disableSubscription,
  findSubscription,
  updateSubscription,
} from "../subscriptions/subscriptions.ts";
import { postTestEvent } from "../subscriptions/test-event.ts";
import { labelKeys } from "../workspaces/key-rows.ts";
import { allPlacements } from "../workspaces/placement.ts";
import { Resealed, rewrapDataKeys } from "../workspaces/rewrap.ts";
import { takeTestEvent } from "../workspaces/workspaces.ts";
import { cursorOf, integer, Nothing, pageOf, RedeliverableSince } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectWorkspace, findWebhook, locateWebhook } from "./placements.ts";
import { advanceReplay, showReplayed } from "./replaying.ts";

const webhookId = "whk_…";
const ofWebhook = z.strictObject({ webhookId: WebhookId });

/** The fields of `updateWebhook` for which null is a value. */
const NULL_CHANGES = ["description", "headers"];

export const listWebhooks = operation({
  about: "Lists a workspace's webhooks, newest first, with their health.",
  input: z.strictObject({ workspaceId: WorkspaceId }),
  output: pageOf(WebhookView),
  examples: [{ workspaceId: "wks_…" }],
  async run({ env, placement }, { workspaceId }) {
    const { db } = placement ?? (await expectWorkspace(env, workspaceId));
    const items = await listSubscriptionHealth(db, env, workspaceId);
    return { items, nextCursor: null };
  },
});

export const readWebhook = operation({
  about: "Shows a webhook with its health, and counts its deliveries of the last days.",
  input: ofWebhook,
  output: WebhookDetails,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db } = await findWebhook(call, webhookId);
    const [view, undeliveredSince] = await Promise.all([
      findSubscriptionHealth(db, call.env, webhookId),
      findUndeliveredSince(db, webhookId),
    ]);
    const keyLabel =
      view.keyId && (await labelKeys(openDirectory(call.env), [view.keyId]))[view.keyId];
    return { ...view, keyLabel: keyLabel ?? null, undeliveredSince };
  },
});

export const updateWebhook = operation({
  about:
    "Changes a webhook's URL, events, description or custom headers. Its secret and history stay. Pending deliveries go to the new URL; no request to the old one starts more than 2 s after the call. Pending deliveries of a type that it no longer lists are cancelled. Custom headers are dropped if the URL gets another origin, unless the same call gives `headers`.",
  input: z
    .strictObject({
      webhookId: WebhookId,
      url: z.string().max(URL_MAX_LENGTH).nullish().describe("under the same rules as a new one"),
      events: z.array(WebhookEvent).min(1).nullish(),
      description: label(DESCRIPTION_MAX_LENGTH).nullish().describe("null or empty: none"),
      headers: CustomHeaders.nullish().describe(
        `sent with each request, by name; at most ${HEADERS_MAX}; null: none. They replace the present ones, and are not shown again`,
      ),
      setHeaders: CustomHeaders.nullish().describe(
        "instead of headers: adds these, or replaces those of the same names; the others stay",
      ),
      removeHeaders: z
        .array(z.string())
        .max(100)
        .nullish()
        .describe("instead of headers: removes these"),
      expected: z
        .strictObject({
          url: z.string().optional(),
          events: z.array(z.string()).optional(),
          description: z.string().nullable().optional(),
          headers: z.array(z.string()).optional().describe("names"),
        })
        .nullish()
        .describe("the values that the caller expects; if one differs, nothing is changed"),
    })
    .refine(
      ({ expected, webhookId, ...changes }) =>
        Object.entries(changes).some(([name, value]) =>
          NULL_CHANGES.includes(name) ? value !== undefined : value != null,
        ),
      "expected a URL, events, a description or headers",
    )
    .refine(
      ({ headers, setHeaders, removeHeaders }) =>
        headers === undefined || (setHeaders == null && removeHeaders == null),
      { path: ["headers"], error: "cannot be combined with setHeaders and removeHeaders" },
    ),
  output: z.object({
    headersDropped: z
      .array(z.string())
      .optional()
      .describe(
        "the names of custom headers that were dropped, because the new URL has another origin",
      ),
  }),
  examples: [
    { webhookId, url: "https://hooks.example.com/automations" },
    { webhookId, events: ["lead.created"], description: "CRM import" },
    { webhookId, setHeaders: { Authorization: "Bearer token" }, removeHeaders: ["X-Old-Token"] },
  ],
  async run(call, { webhookId, expected, ...given }) {
    const { db, database } = await findWebhook(call, webhookId);
    const uri = given.url == null ? null : await acceptUrl(call.env, given.url);
    const wanted = { ...given, url: uri };
    // Another URL gets at once what waits, also if this call repeats one whose reply was lost.
    const toMoved: WakeUp[] = uri === null ? [] : [{ subscriptionId: webhookId, queue: "fast" }];
    for (let tries = 1; tries <= UPDATE_TRIES; tries++) {
      const before = await findFields(db, webhookId);
      expectFields(before, expected ?? {});
      const { changed, headersDropped } = await changeFields(call.env, before, wanted);
      const diff = diffFields(before, { ...before, ...changed });
      if (Object.keys(diff.after).length === 0) {
        call.ctx.waitUntil(sendWakeUps(call.env, database, toMoved));
        return {};
      }
      await call.noteChange?.({ webhookId, ...diff });
      // The change is tried once. After a lost reply, a second try would undo a change that another call made since.
      const { isChanged, wakeUps } = await commit(
        withoutRetries(db),
        updateSubscription(webhookId, changed, Date.now(), before),
      );
      if (!isChanged) continue;
      call.ctx.waitUntil(sendWakeUps(call.env, database, [...wakeUps, ...toMoved]));
      return headersDropped.length > 0 ? { headersDropped } : {};
    }
    throw new InputError("webhookId", "it is being changed by other calls", {
      reason: "changed_meanwhile",
    });
  },
});

/** Returns the URL of a subscription as a URI. @throws InputError if a subscription cannot have it. */
async function acceptUrl(env: Env, url: string): Promise<string> {
  const target = readTarget(env, url);
  const invalid = (reason: Reason) =>
    new InputError("url", `is not accepted: ${reason}`, { reason });
  if (typeof target === "string") throw invalid(target);
  const fault = await findDnsFault(env, target);
  if (fault) throw invalid(fault);
  return target.uri;
}

/** Maximum tries of a change while other calls change the subscription at the same time. */
const UPDATE_TRIES = 3;

export const enableWebhook = operation({
  about: `Re-enables a disabled webhook. With \`redeliverSince\`, each call examines up to ${REDELIVERY_EXAMINED_MAX} events. Call it until nextCursor is null, as the command in a terminal does.`,
  input: z.strictObject({
    webhookId: WebhookId,
    redeliverSince: RedeliverableSince.nullish().describe(
      `also delivers the events recorded since this time that it has not received, at most ${REDELIVERY_MAX_AGE_MS / DAY_MS} days ago; \`readWebhook\` shows the first as \`undeliveredSince\``,
    ),
    cursor: cursorOf("redelivery").describe("the previous call's nextCursor"),
  }),
  output: Redelivered,
  examples: [{ webhookId }],
  async run(call, { webhookId, redeliverSince, cursor }) {
    const placement = await findWebhook(call, webhookId);
    const now = Date.now();
    // A call that continues does not enable the subscription, because it may have been disabled since the first one.
    if (cursor != null) return advanceReplay(call, placement, webhookId, cursor.id, now);
    const since = redeliverSince ?? null;
    const before = await findFields(placement.db, webhookId);
    const change = { webhookId, ...diffFields(before, { ...before, disabledAt: null }) };
    if (since !== null || before.disabledAt !== null) await call.noteChange?.(change);
    const replayed = await enableAndReplay(placement.db, webhookId, since, now);
    if (!replayed) throw inactiveWebhook();
    const isNothing = replayed.count === 0 && replayed.next === null && before.disabledAt === null;
    const { replayId } = replayed;
    if (isNothing) await call.noteChange?.(null);
    else if (replayId) await call.noteChange?.({ ...change, after: { ...change.after, replayId } });
    return showReplayed(call, placement, webhookId, replayed);
  },
});

export const sendTestEvent = operation({
  about: `Sends one sample event, marked as a test, and shows whether the endpoint accepted it. \`readDelivery\` shows the request and the response. A workspace can send ${TEST_EVENTS_PER_MINUTE} a minute.`,
  input: z.strictObject({ webhookId: WebhookId, type: WebhookEvent }),
  output: TestResult,
  examples: [{ webhookId, type: "lead.created" }],
  async run(call, { webhookId, type }) {
    const { db } = await findWebhook(call, webhookId);
    const { workspaceId } = await findSubscription(db, webhookId, Date.now());
    const waitSeconds = await commit(db, takeTestEvent(workspaceId, Date.now()));
    if (waitSeconds !== null)
      throw new InputError(
        "webhookId",
        `its workspace has sent ${TEST_EVENTS_PER_MINUTE} test events in a minute`,
        { retry_after_seconds: waitSeconds },
      );
    await call.noteChange?.({ webhookId });
    // It is read last, because it may have been deleted, or have got another URL, in the meantime.
    const now = Date.now();
    const subscription = await findSubscription(db, webhookId, now);
    if (!subscription.accessGranted)
      throw new InputError("webhookId", "its workspace has no access");
    return postTestEvent(call.env, db, subscription, type, now);
  },
});

export const disableWebhook = operation({
  about: "Disables a webhook and cancels its pending deliveries.",
  input: ofWebhook,
  output: Nothing,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db, database } = await findWebhook(call, webhookId);
    const now = Date.now();
    const before = await findFields(db, webhookId);
    if (before.disabledAt === null)
      await call.noteChange?.({ webhookId, ...diffFields(before, { ...before, disabledAt: now }) });
    // Not retried: a second try could disable a subscription that was enabled again in between.
    const wakeUps = await commit(withoutRetries(db), disableSubscription(webhookId, now));
    call.ctx.waitUntil(sendWakeUps(call.env, database, wakeUps));
    return {};
  },
});

export const deleteWebhook = operation({
  about: "Deletes a webhook and cancels its pending deliveries. An unknown id is not an error.",
  input: ofWebhook,
  output: Nothing,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const found = await locateWebhook(call, webhookId);
    const fields = found && (await findFieldsIfAny(found.db, webhookId));
    if (!fields) return {};
    await call.noteChange?.({ webhookId, before: showFields(fields) });
    const { wakeUps } = await commit(found.db, deleteSubscription(null, webhookId, Date.now()));
    call.ctx.waitUntil(sendWakeUps(call.env, found.database, wakeUps));
    return {};
  },
});

export const rotateWebhookSecret = operation({
  about:
    "Rotates a webhook's secret; both secrets sign until the overlap ends. The new one is shown only once; requests of the next 2 s may lack its signature, and are retried if they are rejected.",
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
    const { db } = await findWebhook(call, webhookId);
    const now = Date.now();
    const before = await findFields(db, webhookId);
    await call.noteChange?.({ webhookId, ...diffFields(before, { ...before, rotatedAt: now }) });
    const { sealedSecret } = before;
    return rotateSecret(db, call.env.ENCRYPTION_KEYS, webhookId, overlap, now, sealedSecret);
  },
});

export const endSecretOverlap = operation({
  about: "Ends the overlap of a rotated secret: only the newest secret signs from now on.",
  input: ofWebhook,
  output: Nothing,
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db } = await findWebhook(call, webhookId);
    const { sealedSecret } = await findFields(db, webhookId);
    await call.noteChange?.({ webhookId });
    const hasEnded = await endOverlap(db, webhookId, sealedSecret, Date.now());
    if (!hasEnded) await call.noteChange?.(null);
    return {};
  },
});

/** Maximum number of data keys that one call of `resealSecrets` re-encrypts. */
const RESEALED_MAX = 100;

export const resealSecrets = operation({
  about: `Re-encrypts the data keys of up to ${RESEALED_MAX} workspaces under the first encryption key. Call it until none remain, as the command in a terminal does. If none is unreadable, the other keys can then be removed.`,
  input: z.strictObject({}),
  output: Resealed,
  examples: [{}],
  async run({ env }) {
    const ring = parseEncryptionKeys(env.ENCRYPTION_KEYS);
    const total = { resealed: 0, remaining: 0, unreadable: 0 };
    for (const { db } of allPlacements(env)) {
      const counts = await rewrapDataKeys(db, ring, RESEALED_MAX - total.resealed);
      total.resealed += counts.resealed;
      total.remaining += counts.remaining;
      total.unreadable += counts.unreadable;
    }
    return total;
  },
});
