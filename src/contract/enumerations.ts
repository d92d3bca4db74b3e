import * as z from "zod";

/** A description of an enumeration, value by value. */
function valued<V extends string>(about: string, values: Record<V, string>): string {
  const lines = Object.entries(values).map(([value, meaning]) => `- \`${value}\`: ${meaning}`);
  return [about, "", ...lines].join("\n");
}

export const SOCIAL_AUTOMATION_TYPES = [
  "social_comments",
  "social_story",
  "social_messages",
  "lead_ads",
] as const;

export const AutomationType = z.enum([...SOCIAL_AUTOMATION_TYPES, "crm_source"]).meta({
  id: "AutomationType",
  description: valued("What sets the automation off. New channels will bring new values.", {
    social_comments: "a comment under a post on Facebook or Instagram",
    social_story: "a reply to an Instagram or Facebook story",
    social_messages: "a private message on Facebook or Instagram",
    lead_ads: "a form that somebody filled in on a Meta lead ad",
    crm_source: "an event of a connected CRM",
  }),
});

export const AutomationStatus = z.enum(["active", "paused", "draft", "error"]).meta({
  id: "AutomationStatus",
  description: valued("Whether the automation runs.", {
    active: "it runs",
    paused: "somebody paused it, in the application or through this API",
    draft: "it was never activated; only the application can do that",
    error:
      "it stopped by itself, for instance because its account was disconnected or a token revoked; only the application can repair that",
  }),
});

export const LeadSource = z.enum(["widget", "social", "telephony", "lead_ads", "crm"]).meta({
  id: "LeadSource",
  description: valued("Where the lead came from.", {
    widget: "the chat widget on a website",
    social: "a comment, story reply or message on a social network",
    telephony: "a phone call",
    lead_ads: "a form of a Meta lead ad",
    crm: "a connected CRM",
  }),
});

export const RunStatus = z.enum(["success", "partial", "failed"]).meta({
  id: "RunStatus",
  description: valued("How the run ended.", {
    success: "all of its actions succeeded",
    partial: "some of its actions succeeded, others failed: see `actions`",
    failed: "it achieved nothing",
  }),
});

export const TriggerType = z
  .enum(["comment", "story_reply", "message", "lead_ads", "crm_event"])
  .meta({
    id: "TriggerType",
    description: valued("What set the run off.", {
      comment: "a comment under a post",
      story_reply: "a reply to a story",
      message: "a private message",
      lead_ads: "a form of a lead ad",
      crm_event: "an event of a connected CRM",
    }),
  });

export const WebhookEvent = z
  .enum(["run.completed", "lead.created", "automation.status_changed"])
  .meta({
    id: "WebhookEvent",
    description: valued("A kind of event.", {
      "run.completed": "an automation finished a run, whether it succeeded or not",
      "lead.created": "a new lead was captured, from any source",
      "automation.status_changed": "an automation was activated or paused",
    }),
  });

export type AutomationStatus = z.infer<typeof AutomationStatus>;
export type AutomationType = z.infer<typeof AutomationType>;
export type LeadSource = z.infer<typeof LeadSource>;
export type RunStatus = z.infer<typeof RunStatus>;
export type TriggerType = z.infer<typeof TriggerType>;
export type WebhookEvent = z.infer<typeof WebhookEvent>;
