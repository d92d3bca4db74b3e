import * as z from "zod";
import {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  TriggerType,
  WebhookEvent,
} from "./enumerations.ts";
import { ID_PREFIXES, type IdKind } from "./ids.ts";

export {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  TriggerType,
  WebhookEvent,
} from "./enumerations.ts";

/*
 * The public shapes, in their readers' words. The Worker knows them as types: their schemas make the
 * OpenAPI document, and judge answers in tests.
 */

/** An identifier of this kind as clients see it: opaque behind its prefix. */
function id(kind: IdKind, what: string) {
  const prefix = ID_PREFIXES[kind];
  return z.string().meta({
    description: `${what} Opaque, starts with \`${prefix}\`.`,
    example: `${prefix}0q2m5x8c1v7b4n9k3j6h0g2f5`,
  });
}

/** An instant, as `isoTime` writes it. */
function instant(what: string) {
  return z.iso.datetime().meta({
    description: `${what} ISO 8601, in UTC, with the suffix \`Z\`.`,
    example: "2026-03-14T09:26:53.589Z",
  });
}

const AGENT =
  "An agent is whom your workspace answers as, usually one for each of its branches or brands: it owns automations, and captures leads.";

export const Automation = z
  .object({
    id: id("automation", "Identifies the automation, and never changes."),
    name: z.string().meta({
      description:
        "The name that the application shows, in French. For a social automation it is made of what kind of reply it gives (“Réponse aux commentaires”: it answers comments) and the name of its agent.",
      example: "Réponse aux commentaires – Agence Lumière",
    }),
    type: AutomationType,
    provider: z.string().meta({
      description:
        "The connector that the automation works through, such as `facebook`, `instagram`, `instagram_page` or the name of a CRM. A free string: be ready for values that you do not know.",
      example: "instagram",
    }),
    agent_id: id("agent", "The agent that the automation belongs to."),
    agent_name: z.string().meta({
      description: "The name of that agent, as the application shows it.",
      example: "Agence Lumière",
    }),
    status: AutomationStatus,
    updated_at: instant(
      "When the automation last changed. Of two copies of it, the later one holds.",
    ),
  })
  .meta({
    id: "Automation",
    description: `A rule that reacts to something, such as a comment or a form, on behalf of an agent. ${AGENT}`,
  });

export const Lead = z
  .object({
    id: id("lead", "Identifies the lead."),
    source: LeadSource,
    agent_id: id("agent", "The agent that captured the lead."),
    name: z.string().nullable().meta({
      description: "The person's name; null when it is not known.",
      example: "Camille Durand",
    }),
    email: z.string().nullable().meta({
      description: "The person's e-mail address; null when it is not known.",
      example: "camille.durand@example.com",
    }),
    phone: z.string().nullable().meta({
      description: "The person's phone number, as its source wrote it; null when it is not known.",
      example: "+33600000000",
    }),
    custom_fields: z.record(z.string(), z.unknown()).meta({
      description:
        "Whatever else the source of the lead gave, such as the answers to a form. Keys and types of values are those of the source.",
      example: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
    }),
    created_at: instant("When the lead was captured."),
  })
  .meta({ id: "Lead", description: "A person who showed interest, captured by an agent." });

const RunAction = z
  .object({
    type: z.string().optional().meta({
      description: "What was done. A free string.",
      example: "send_message",
    }),
    status: z.string().optional().meta({
      description: "How it ended. A free string.",
      example: "success",
    }),
  })
  .meta({ id: "RunAction", description: "One thing that an automation did during a run." });

export const Run = z
  .object({
    id: id("run", "Identifies the run."),
    automation_id: id("automation", "The automation that ran."),
    status: RunStatus,
    trigger_type: TriggerType,
    occurred_at: instant("When the automation ran."),
    actions: z
      .array(RunAction)
      .meta({ description: "What the automation did, in the order in which it did it." }),
    lead_id: id("lead", "The lead that the run was about; null when there was none.").nullable(),
  })
  .meta({
    id: "Run",
    description: "One time that an automation reacted; runs are over when they appear.",
  });

export const Webhook = z
  .object({
    id: id("webhook", "Identifies the subscription."),
    url: z.url().meta({
      description: "Where events are posted.",
      example: "https://hooks.example.com/automations",
    }),
    events: z.array(WebhookEvent).meta({
      description: "The kinds of events that are posted there.",
      example: ["lead.created"],
    }),
    created_at: instant("When the subscription was created."),
    disabled_at: instant(
      "Null while the subscription is active; the time when it was disabled, after prolonged delivery failures.",
    )
      .nullable()
      .meta({ example: null }),
  })
  .meta({ id: "Webhook", description: "A subscription: which events are posted to which URL." });

export const WebhookWithSecret = Webhook.extend({
  secret: z.string().meta({
    description:
      "The key of the signatures of this subscription's deliveries. Store it now: no later answer holds it.",
    example: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbGFzcXVlbGE=",
  }),
}).meta({ id: "WebhookWithSecret", description: "A subscription that was just created." });

/** The body of a delivery: `type` fixes the shape of `data`. */
function delivery<T extends z.infer<typeof WebhookEvent>, D extends z.ZodType>(type: T, data: D) {
  return z.object({
    id: id(
      "event",
      "Identifies the event. It stays the same when it is delivered again: deduplicate by it.",
    ),
    type: z.literal(type).meta({ description: "The kind of event: it says what `data` is." }),
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
        "An automation was activated or paused; `data` is the automation as it was after that.",
    }),
  ])
  .meta({
    id: "WebhookDelivery",
    description: "An event, as it is posted to subscribers: `type` says what `data` is.",
  });

export type Automation = z.infer<typeof Automation>;
export type Lead = z.infer<typeof Lead>;
export type Run = z.infer<typeof Run>;
export type Webhook = z.infer<typeof Webhook>;
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

/** The pagination envelope around the items of a list. */
export interface Page<T> {
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}
