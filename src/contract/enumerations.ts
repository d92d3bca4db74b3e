export const SOCIAL_AUTOMATION_TYPES = [
  "social_comments",
  "social_story",
  "social_messages",
  "lead_ads",
] as const;
export const AUTOMATION_TYPES = [...SOCIAL_AUTOMATION_TYPES, "crm_source"] as const;
export const AUTOMATION_STATUSES = ["active", "paused", "draft", "error"] as const;
export const LEAD_SOURCES = ["widget", "social", "telephony", "lead_ads", "crm"] as const;
export const RUN_STATUSES = ["success", "partial", "failed"] as const;
export const TRIGGER_TYPES = [
  "comment",
  "story_reply",
  "message",
  "lead_ads",
  "crm_event",
] as const;
export const WEBHOOK_EVENTS = [
  "run.completed",
  "lead.created",
  "automation.status_changed",
] as const;

export type AutomationType = (typeof AUTOMATION_TYPES)[number];
export type AutomationStatus = (typeof AUTOMATION_STATUSES)[number];
export type LeadSource = (typeof LEAD_SOURCES)[number];
export type RunStatus = (typeof RUN_STATUSES)[number];
export type TriggerType = (typeof TRIGGER_TYPES)[number];
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number];
