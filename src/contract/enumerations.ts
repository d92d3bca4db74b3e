import * as z from "zod";

export const SOCIAL_AUTOMATION_TYPES = [
  "social_comments",
  "social_story",
  "social_messages",
  "lead_ads",
] as const;

export const AutomationType = z
  .enum([...SOCIAL_AUTOMATION_TYPES, "crm_source"])
  .meta({ id: "AutomationType" });

export const AutomationStatus = z
  .enum(["active", "paused", "draft", "error"])
  .meta({ id: "AutomationStatus" });

export const LeadSource = z
  .enum(["widget", "social", "telephony", "lead_ads", "crm"])
  .meta({ id: "LeadSource" });

export const RunStatus = z.enum(["success", "partial", "failed"]).meta({ id: "RunStatus" });

export const TriggerType = z
  .enum(["comment", "story_reply", "message", "lead_ads", "crm_event"])
  .meta({ id: "TriggerType" });

export const WebhookEvent = z
  .enum(["run.completed", "lead.created", "automation.status_changed"])
  .meta({ id: "WebhookEvent" });

export type AutomationStatus = z.infer<typeof AutomationStatus>;
export type AutomationType = z.infer<typeof AutomationType>;
export type LeadSource = z.infer<typeof LeadSource>;
export type RunStatus = z.infer<typeof RunStatus>;
export type TriggerType = z.infer<typeof TriggerType>;
export type WebhookEvent = z.infer<typeof WebhookEvent>;
