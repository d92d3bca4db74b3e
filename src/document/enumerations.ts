import type {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  TriggerType,
  WebhookEvent,
} from "../contract/enumerations.ts";

interface Meaning<Value extends string> {
  about: string;
  values: Record<Value, string>;
}

/** The description of each enumeration and of each of its values. */
const MEANINGS: {
  AutomationType: Meaning<AutomationType>;
  AutomationStatus: Meaning<AutomationStatus>;
  LeadSource: Meaning<LeadSource>;
  RunStatus: Meaning<RunStatus>;
  TriggerType: Meaning<TriggerType>;
  WebhookEvent: Meaning<WebhookEvent>;
} = {
  AutomationType: {
    about: "What triggers the automation. New channels will add new values.",
    values: {
      social_comments: "a comment under a post on Facebook or Instagram",
      social_story: "a reply to an Instagram or Facebook story",
      social_messages: "a private message on Facebook or Instagram",
      lead_ads: "a form submitted on a Meta lead ad",
      crm_source: "an event of a connected CRM",
    },
  },
  AutomationStatus: {
    about: "Whether the automation runs.",
    values: {
      active: "it is running",
      paused: "somebody paused it, in the application or through this API",
      draft: "it was never activated; this can only be done in the application",
      error:
        "it stopped on an error, for instance because its account was disconnected or a token was revoked; this can only be fixed in the application",
    },
  },
  LeadSource: {
    about: "Where the lead came from.",
    values: {
      widget: "the chat widget on a website",
      social: "a comment, story reply or message on a social network",
      telephony: "a phone call",
      lead_ads: "a form on a Meta lead ad",
      crm: "a connected CRM",
    },
  },
  RunStatus: {
    about: "How the run ended.",
    values: {
      success: "all actions succeeded",
      partial: "some actions succeeded and others failed: see `actions`",
      failed: "it achieved nothing",
    },
  },
  TriggerType: {
    about: "What triggered the run.",
    values: {
      comment: "a comment under a post",
      story_reply: "a reply to a story",
      message: "a private message",
      lead_ads: "a form on a lead ad",
      crm_event: "an event of a connected CRM",
    },
  },
  WebhookEvent: {
    about: "A kind of event.",
    values: {
      "run.completed": "an automation finished a run, successfully or not",
      "lead.created": "a new lead was captured, from any source",
      "automation.status_changed": "an automation was activated or paused",
    },
  },
};

/** The descriptions of the enumerations, by name. */
export const ENUMERATIONS: Record<string, string> = Object.fromEntries(
  Object.entries(MEANINGS).map(([name, { about, values }]) => {
    const lines = Object.entries(values).map(([value, meaning]) => `- \`${value}\`: ${meaning}`);
    return [name, [about, "", ...lines].join("\n")];
  }),
);
