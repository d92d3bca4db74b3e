import type * as z from "zod";
import type * as enumerations from "../contract/enumerations.ts";

type Enumerations = typeof enumerations;
type Value<N extends keyof Enumerations> = Enumerations[N] extends z.ZodType
  ? Extract<z.infer<Enumerations[N]>, string>
  : never;
type Name = {
  [N in keyof Enumerations]: Enumerations[N] extends z.ZodType ? N : never;
}[keyof Enumerations];

/** What each enumeration is about, and what each of its values means. */
const MEANINGS: { [N in Name]: { about: string; values: Record<Value<N>, string> } } = {
  AutomationType: {
    about: "What sets the automation off. New channels will bring new values.",
    values: {
      social_comments: "a comment under a post on Facebook or Instagram",
      social_story: "a reply to an Instagram or Facebook story",
      social_messages: "a private message on Facebook or Instagram",
      lead_ads: "a form that somebody filled in on a Meta lead ad",
      crm_source: "an event of a connected CRM",
    },
  },
  AutomationStatus: {
    about: "Whether the automation runs.",
    values: {
      active: "it runs",
      paused: "somebody paused it, in the application or through this API",
      draft: "it was never activated; only the application can do that",
      error:
        "it stopped by itself, for instance because its account was disconnected or a token revoked; only the application can repair that",
    },
  },
  LeadSource: {
    about: "Where the lead came from.",
    values: {
      widget: "the chat widget on a website",
      social: "a comment, story reply or message on a social network",
      telephony: "a phone call",
      lead_ads: "a form of a Meta lead ad",
      crm: "a connected CRM",
    },
  },
  RunStatus: {
    about: "How the run ended.",
    values: {
      success: "all of its actions succeeded",
      partial: "some of its actions succeeded, others failed: see `actions`",
      failed: "it achieved nothing",
    },
  },
  TriggerType: {
    about: "What set the run off.",
    values: {
      comment: "a comment under a post",
      story_reply: "a reply to a story",
      message: "a private message",
      lead_ads: "a form of a lead ad",
      crm_event: "an event of a connected CRM",
    },
  },
  WebhookEvent: {
    about: "A kind of event.",
    values: {
      "run.completed": "an automation finished a run, whether it succeeded or not",
      "lead.created": "a new lead was captured, from any source",
      "automation.status_changed": "an automation was activated or paused",
    },
  },
};

/** The descriptions of the enumerations, by their names. */
export const ENUMERATIONS: Record<string, string> = Object.fromEntries(
  Object.entries(MEANINGS).map(([name, { about, values }]) => {
    const lines = Object.entries(values).map(([value, meaning]) => `- \`${value}\`: ${meaning}`);
    return [name, [about, "", ...lines].join("\n")];
  }),
);
