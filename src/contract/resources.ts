import * as z from "zod";
import {
  AUTOMATION_STATUSES,
  AUTOMATION_TYPES,
  LEAD_SOURCES,
  RUN_STATUSES,
  TRIGGER_TYPES,
  WEBHOOK_EVENTS,
} from "./enumerations.ts";
import { ID_PREFIXES, type IdKind } from "./ids.ts";

export type {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  TriggerType,
  WebhookEvent,
} from "./enumerations.ts";

/*
 * The public shapes, described for API users. The Worker only uses their types; the schemas
 * generate the OpenAPI document and validate answers in tests.
 */

const AutomationType = z.enum(AUTOMATION_TYPES).meta({ id: "AutomationType" });
const AutomationStatus = z.enum(AUTOMATION_STATUSES).meta({ id: "AutomationStatus" });
const LeadSource = z.enum(LEAD_SOURCES).meta({ id: "LeadSource" });
const RunStatus = z.enum(RUN_STATUSES).meta({ id: "RunStatus" });
const TriggerType = z.enum(TRIGGER_TYPES).meta({ id: "TriggerType" });
const WebhookEvent = z.enum(WEBHOOK_EVENTS).meta({ id: "WebhookEvent" });

/** An id as clients see it: opaque except for its prefix. */
function id(kind: IdKind, what: string) {
  const prefix = ID_PREFIXES[kind];
  return z.string().meta({
    description: `${what} Opaque; starts with \`${prefix}\`.`,
    example: `${prefix}0q2m5x8c1v7b4n9k3j6h0g2f5`,
  });
}

/** A time, as `isoTime` formats it. */
function instant(what: string) {
  return z.iso.datetime().meta({
    description: `${what} ISO 8601, UTC, with the suffix \`Z\`.`,
    example: "2026-03-14T09:26:53.589Z",
  });
}

const AGENT =
  "An agent is the identity that your workspace answers as, usually one per branch or brand. It owns automations and captures leads.";

export const Automation = z
  .object({
    id: id("automation", "Identifies the automation; never changes."),
    name: z.string().meta({
      description:
        "The name shown in the application, in French. For a social automation, it combines the kind of reply (“Réponse aux commentaires”: replies to comments) and the agent's name.",
      example: "Réponse aux commentaires – Agence Lumière",
    }),
    type: AutomationType,
    provider: z.string().meta({
      description:
        "The connector that the automation uses, such as `facebook`, `instagram`, `instagram_page` or the name of a CRM. A free string: be prepared for new values.",
      example: "instagram",
    }),
    agent_id: id("agent", "The agent that the automation belongs to."),
    agent_name: z.string().meta({
      description: "The agent's name, as the application shows it.",
      example: "Agence Lumière",
    }),
    status: AutomationStatus,
    updated_at: instant(
      "When the automation last changed. If you have two copies, the later one is current.",
    ),
  })
  .meta({
    id: "Automation",
    description: `A rule that reacts to a trigger, such as a comment or a form, on behalf of an agent. ${AGENT}`,
  });

export const Lead = z
  .object({
    id: id("lead", "Identifies the lead."),
    source: LeadSource,
    agent_id: id("agent", "The agent that captured the lead."),
    name: z.string().nullable().meta({
      description: "The person's name; null if unknown.",
      example: "Camille Durand",
    }),
    email: z.string().nullable().meta({
      description: "The person's e-mail address; null if unknown.",
      example: "camille.durand@example.com",
    }),
    phone: z.string().nullable().meta({
      description: "The person's phone number, as the source provided it; null if unknown.",
      example: "+33600000000",
    }),
    custom_fields: z.record(z.string(), z.unknown()).meta({
      description:
        "Other data from the lead's source, such as form answers. The source determines the keys and value types.",
      example: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
    }),
    created_at: instant("When the lead was captured."),
  })
  .meta({ id: "Lead", description: "A person who showed interest, captured by an agent." });

const RunAction = z
  .object({
    type: z.string().optional().meta({
      description: "What the automation did. A free string.",
      example: "send_message",
    }),
    status: z.string().optional().meta({
      description: "The result. A free string.",
      example: "success",
    }),
  })
  .meta({ id: "RunAction", description: "One thing the automation did during a run." });

export const Run = z
  .object({
    id: id("run", "Identifies the run."),
    automation_id: id("automation", "The automation that ran."),
    status: RunStatus,
    trigger_type: TriggerType,
    occurred_at: instant("When the automation ran."),
    actions: z.array(RunAction).meta({ description: "What the automation did, in order." }),
    lead_id: id("lead", "The lead that the run was about; null if there was none.").nullable(),
  })
  .meta({
    id: "Run",
    description: "One reaction of an automation to its trigger. Only finished runs appear.",
  });

export const Webhook = z
  .object({
    id: id("webhook", "Identifies the subscription."),
    url: z.url().meta({
      description: "The URL that events are posted to.",
      example: "https://hooks.example.com/automations",
    }),
    events: z.array(WebhookEvent).meta({
      description: "The kinds of events that are posted.",
      example: ["lead.created"],
    }),
    created_at: instant("When the subscription was created."),
    disabled_at: instant(
      "Null while the subscription is active; otherwise when it was disabled, after prolonged delivery failures.",
    )
      .nullable()
      .meta({ example: null }),
  })
  .meta({
    id: "Webhook",
    description: "A subscription: a URL and the kinds of events that are posted to it.",
  });

export const WebhookWithSecret = Webhook.extend({
  secret: z.string().meta({
    description:
      "The signing key of this subscription's deliveries. Store it now: it is not shown again.",
    example: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbGFzcXVlbGE=",
  }),
}).meta({ id: "WebhookWithSecret", description: "A newly created subscription." });

/** The body of a delivery; `type` determines the shape of `data`. */
function delivery<T extends z.infer<typeof WebhookEvent>, D extends z.ZodType>(type: T, data: D) {
  return z.object({
    id: id(
      "event",
      "Identifies the event. A repeated delivery has the same id: use it to deduplicate.",
    ),
    type: z
      .literal(type)
      .meta({ description: "The kind of event; determines the shape of `data`." }),
    created_at: instant("When the event happened."),
    data,
  });
}

export const WebhookDelivery = z
  .discriminatedUnion("type", [
    delivery("lead.created", Lead).meta({
      id: "LeadCreated",
      description: "A new lead was captured; `data` is the lead.",
    }),
    delivery("run.completed", Run).meta({
      id: "RunCompleted",
      description: "An automation finished a run; `data` is the run.",
    }),
    delivery("automation.status_changed", Automation).meta({
      id: "AutomationStatusChanged",
      description:
        "An automation was activated or paused; `data` is the automation after the change.",
    }),
  ])
  .meta({
    id: "WebhookDelivery",
    description: "An event as posted to subscribers; `type` determines the shape of `data`.",
  });

export type Automation = z.infer<typeof Automation>;
export type Lead = z.infer<typeof Lead>;
export type Run = z.infer<typeof Run>;
export type Webhook = z.infer<typeof Webhook>;
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

/** The pagination envelope of a list. */
export interface Page<T> {
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}
