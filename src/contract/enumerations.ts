import { z } from "@hono/zod-openapi";
import { EVENT_TYPES, type EventType } from "./event-types.ts";

/** A named enumeration of the contract, documented with the meaning of each of its values. */
function documented<const Value extends string>(
  name: string,
  about: string,
  meanings: Record<Value, string>,
) {
  const lines = Object.entries(meanings).map(([value, meaning]) => `- \`${value}\`: ${meaning}`);
  const values = Object.keys(meanings) as [Value, ...Value[]];
  return z.enum(values).openapi(name, { description: [about, "", ...lines].join("\n") });
}

export const AutomationType = documented(
  "AutomationType",
  "What triggers the automation: Facebook or Instagram, or a CRM. New channels will add new values.",
  {
    social_comments: "a comment under a post",
    social_story: "a reply to a story",
    social_messages: "a private message",
    lead_ads: "a form on a lead ad",
    crm_source: "an event of a connected CRM",
  },
);

export const AutomationStatus = documented("AutomationStatus", "Whether the automation runs.", {
  active: "it is running",
  paused: "it was paused, in the app or through this API",
  draft: "it was never activated, which can only be done in the app",
  error:
    "it stopped on an error, for instance because a token was revoked, which can only be fixed in the app",
});

export const LeadSource = documented("LeadSource", "Where the lead came from.", {
  widget: "the chat widget on a website",
  social: "a comment, story reply or message on a social network",
  telephony: "a phone call",
  lead_ads: "a form on a Meta lead ad",
  crm: "a connected CRM",
});

export const RunStatus = documented("RunStatus", "How the run ended.", {
  success: "all actions succeeded",
  partial: "some actions succeeded and others failed (see `actions`)",
  failed: "no action succeeded",
});

export const TriggerType = documented("TriggerType", "What triggered the run.", {
  comment: "a comment under a post",
  story_reply: "a reply to a story",
  message: "a private message",
  lead_ads: "a form on a lead ad",
  crm_event: "an event of a connected CRM",
});

// The meanings are those of the document's webhooks. Importers of agents accept no description with all of them.
export const WebhookEvent = z
  .enum(Object.keys(EVENT_TYPES) as [EventType, ...EventType[]])
  .openapi("WebhookEvent", {
    description: "The type of an event: what happened to which record. New types may be added.",
  });

export type AutomationType = z.infer<typeof AutomationType>;
export type AutomationStatus = z.infer<typeof AutomationStatus>;
export type LeadSource = z.infer<typeof LeadSource>;
export type RunStatus = z.infer<typeof RunStatus>;
export type TriggerType = z.infer<typeof TriggerType>;
export type WebhookEvent = z.infer<typeof WebhookEvent>;

/** The state of a delivery as its row stores it. A test event is sent once, whatever the response. */
export const DeliveryState = z.enum(["pending", "delivered", "exhausted", "cancelled", "test"]);
export type DeliveryState = z.infer<typeof DeliveryState>;

/** The state of a delivery as operations show it. A pending one that has failed is `retrying`. */
export const ShownDeliveryState = z.enum([
  "pending",
  "retrying",
  "delivered",
  "exhausted",
  "cancelled",
  "test",
]);
export type ShownDeliveryState = z.infer<typeof ShownDeliveryState>;

/** The class of the last attempt's status, or `none` if there was no response. */
export const StatusClass = z.enum(["1xx", "2xx", "3xx", "4xx", "5xx", "none"]);
export type StatusClass = z.infer<typeof StatusClass>;

/** The states by which lists of deliveries are filtered; a `waiting` one is pending or retrying. */
export const DeliveryStateFilter = z.enum([...ShownDeliveryState.options, "waiting"]);
export type DeliveryStateFilter = z.infer<typeof DeliveryStateFilter>;

/**
 * The state of an event that may be sent again. A `missed` event never had a delivery: when it was recorded, the
 * subscription was disabled or did not list its type, or its workspace had no access. An event that no subscription of
 * the workspace listed was never stored, so it is not missed. A `retrying` one has failed, and waits for its next
 * attempt.
 */
export const RedeliveryState = z.enum([
  "delivered",
  "exhausted",
  "cancelled",
  "missed",
  "retrying",
]);
export type RedeliveryState = z.infer<typeof RedeliveryState>;
