import { z } from "@hono/zod-openapi";
import { WebhookEvent } from "../contract/enumerations.ts";

/* What operations show of a workspace and its API keys. The portal's page uses the same shapes. */

const Time = z.string();

export const WorkspaceDetails = z.object({
  workspaceId: z.string(),
  name: z.string(),
  webhooksMax: z.int().describe("how many subscriptions it may have"),
  retentionDays: z.number().describe("how long settled events are kept at least"),
  events: z.array(WebhookEvent).describe("the kinds that it may subscribe to"),
});
export type WorkspaceDetails = z.infer<typeof WorkspaceDetails>;

export const ApiKeyView = z.object({
  keyId: z.string(),
  name: z.string().nullable(),
  lastFour: z.string().describe("the last characters of the key"),
  createdAt: Time,
  lastUsedAt: Time.nullable().describe(
    "it was last used within the hour after this time; null if never",
  ),
  revokedAt: Time.nullable(),
  expiresAt: Time.nullable().describe("when a rolled key expires; null if it does not"),
  requestsPerWindow: z.int().describe("its quota"),
  windowSeconds: z.int(),
  hours: z
    .array(
      z.object({
        hour: Time,
        requests: z.int().describe("within the quota"),
        refused: z.int().describe("beyond it"),
        busiest: z.int().describe("the most in one window"),
      }),
    )
    .describe("the last 24, oldest first"),
});
export type ApiKeyView = z.infer<typeof ApiKeyView>;
