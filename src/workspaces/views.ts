import { z } from "@hono/zod-openapi";
import { RedeliveryState, StatusClass, WebhookEvent } from "../contract/enumerations.ts";
import { REPLAY_MAX_DAYS } from "../contract/limits.ts";

/* The shapes in which operations and the portal's page show a workspace, its API keys, its changes and its replays. */

const Time = z.string();

export const WorkspaceDetails = z.object({
  workspaceId: z.string(),
  name: z.string(),
  webhooksMax: z.int().describe("maximum number of webhooks"),
  retentionDays: z
    .number()
    .describe(
      "how long events without a pending delivery are stored, in days (`EVENTS_KEPT_DAYS`); those beyond `EVENTS_KEPT_MAX` are deleted earlier",
    ),
  events: z.array(WebhookEvent).describe("the event types that it may subscribe to"),
});
export type WorkspaceDetails = z.infer<typeof WorkspaceDetails>;

/** Fields of a subscription before or after a change, without those that stayed the same. */
export const ChangedFieldsView = z.object({
  url: z.string().optional(),
  events: z.array(WebhookEvent).optional(),
  description: z.string().nullable().optional(),
  headers: z.array(z.string()).optional().describe("the names of its custom headers"),
  disabledAt: Time.nullable().optional(),
  rotatedAt: Time.nullable().optional().describe("when its secret was last rotated"),
  replayId: z.string().optional().describe("the replay that the call has begun"),
});

/** A replay of a range of events. */
export const ReplayView = z.object({
  replayId: z.string(),
  createdAt: Time,
  since: Time,
  until: Time,
  states: z.array(RedeliveryState),
  type: WebhookEvent.nullable().describe("null: all"),
  status: z.union([z.int(), StatusClass]).nullable().describe("of the last attempt; null: any"),
  isExamining: z
    .boolean()
    .describe("whether it still looks for events; the scheduled job continues it, if no call does"),
  scheduled: z
    .int()
    .describe(
      "deliveries that it has found so far: delivered, failed, waiting, or not sent when it ended",
    ),
  delivered: z.int(),
  failed: z.int().describe("those whose last attempt failed; if a retry succeeds, it is delivered"),
  endedAt: Time.nullable(),
  result: z
    .enum(["done", "stopped", "interrupted"])
    .nullable()
    .describe(
      `stopped: by a person, or after ${REPLAY_MAX_DAYS} days; interrupted: the webhook was disabled or deleted, or access ended; null until it has ended`,
    ),
});
export type ReplayView = z.infer<typeof ReplayView>;

/** A change of a subscription. */
export const WebhookChangeView = z.object({
  at: Time,
  method: z.string().describe("the operation, such as updateWebhook"),
  actor: z
    .string()
    .nullable()
    .describe("the person, as the platform named them; null if it did not"),
  via: z
    .string()
    .describe("portal, rpc, https: and the id of the key, or api: and the id of the API key"),
  key: z
    .string()
    .nullable()
    .describe("the name and last characters of that API key, if it still exists"),
  result: z.string().describe("ok, or failed, after which the change may have happened"),
  before: ChangedFieldsView.nullable().describe("null if the operation changes no field"),
  after: ChangedFieldsView.nullable(),
  replay: ReplayView.nullable().describe("the replay that it has begun, if that is still stored"),
});
export type WebhookChangeView = z.infer<typeof WebhookChangeView>;

/** An entry of the history of a workspace. */
export const WorkspaceChangeView = WebhookChangeView.extend({
  webhookId: z.string().nullable().describe("the webhook that it changed, which may be deleted"),
});
export type WorkspaceChangeView = z.infer<typeof WorkspaceChangeView>;

export const ApiKeyView = z.object({
  keyId: z.string(),
  name: z.string().nullable(),
  lastFour: z.string().describe("the last characters of the key"),
  createdAt: Time,
  lastUsedAt: Time.nullable().describe(
    "it was last used within the hour after this time; null if never",
  ),
  revokedAt: Time.nullable(),
  expiresAt: Time.nullable().describe(
    "when the key expires, after it was rotated; null if it does not",
  ),
  requestsPerWindow: z.int().describe("its rate limit"),
  windowSeconds: z.int(),
  hours: z
    .array(
      z.object({
        hour: Time,
        requests: z.int().describe("within the rate limit"),
        refused: z.int().describe("beyond it, with status 429"),
        busiest: z.int().describe("the highest number in one window"),
      }),
    )
    .describe("the last 24, oldest first"),
});
export type ApiKeyView = z.infer<typeof ApiKeyView>;
