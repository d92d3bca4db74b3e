import { z } from "zod";
import { ID_PREFIXES, type IdKind } from "./ids.ts";
import { IsoTime } from "./time.ts";

/** An identifier of this kind as clients see it: opaque behind its prefix. */
function id(kind: IdKind) {
  const prefix = ID_PREFIXES[kind];
  return z.string().meta({
    description: `Opaque, starts with \`${prefix}\`.`,
    example: `${prefix}0q2m5x8c1v7b4n9k3j6h0g2f5`,
  });
}

export const SOCIAL_AUTOMATION_TYPES = [
  "social_comments",
  "social_story",
  "social_messages",
  "lead_ads",
] as const;

export const AutomationType = z
  .enum([...SOCIAL_AUTOMATION_TYPES, "crm_source"])
  .meta({ id: "AutomationType", description: "The first four are the Meta networks." });

export const AutomationStatus = z.enum(["active", "paused", "draft", "error"]).meta({
  id: "AutomationStatus",
  description:
    "`active`: running. `paused`: paused from the application or the API. `draft`: never activated. `error`: stopped on an error.",
});

export const Automation = z
  .object({
    id: id("automation"),
    name: z.string().meta({ example: "Réponse aux commentaires – Agence Lumière" }),
    type: AutomationType,
    provider: z
      .string()
      .meta({ description: "Free string: the set of values grows.", example: "instagram" }),
    agent_id: id("agent"),
    agent_name: z.string().meta({ example: "Agence Lumière" }),
    status: AutomationStatus,
    updated_at: IsoTime,
  })
  .meta({ id: "Automation" });

export const LeadSource = z
  .enum(["widget", "social", "telephony", "lead_ads", "crm"])
  .meta({ id: "LeadSource" });

const CustomFields = z.record(z.string(), z.unknown()).meta({
  description: "Whatever the source of the lead gave; keys and value types are its own.",
  example: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
});

export const Lead = z
  .object({
    id: id("lead"),
    source: LeadSource,
    agent_id: id("agent"),
    name: z.string().nullable().meta({ example: "Camille Durand" }),
    email: z.string().nullable().meta({ example: "camille.durand@example.com" }),
    phone: z.string().nullable().meta({ example: "+33600000000" }),
    custom_fields: CustomFields,
    created_at: IsoTime,
  })
  .meta({ id: "Lead" });

export const RunStatus = z.enum(["success", "partial", "failed"]).meta({ id: "RunStatus" });

export const TriggerType = z
  .enum(["comment", "story_reply", "message", "lead_ads", "crm_event"])
  .meta({ id: "TriggerType" });

const RunAction = z
  .object({
    type: z.string().optional().meta({ example: "send_message" }),
    status: z.string().optional().meta({ example: "success" }),
  })
  .meta({ id: "RunAction" });

export const Run = z
  .object({
    id: id("run"),
    automation_id: id("automation"),
    status: RunStatus,
    trigger_type: TriggerType,
    occurred_at: IsoTime,
    actions: z.array(RunAction),
    lead_id: id("lead").nullable(),
  })
  .meta({ id: "Run" });

export const WebhookEvent = z
  .enum(["run.completed", "lead.created", "automation.status_changed"])
  .meta({ id: "WebhookEvent" });

export const Webhook = z
  .object({
    id: id("webhook"),
    url: z.url().meta({ example: "https://hooks.example.com/automations" }),
    events: z.array(WebhookEvent),
    created_at: IsoTime,
    disabled_at: IsoTime.nullable().meta({
      description: "Set when the subscription was disabled after prolonged delivery failures.",
    }),
  })
  .meta({ id: "Webhook" });

export const WebhookWithSecret = Webhook.extend({
  secret: z.string().meta({
    description: "Verifies delivery signatures; shown in this answer only.",
    example: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbGFzcXVlbGE=",
  }),
}).meta({ id: "WebhookWithSecret" });

/** The body of a delivery: `type` fixes the shape of `data`. */
function delivery<T extends z.infer<typeof WebhookEvent>, D extends z.ZodType>(type: T, data: D) {
  return z.object({
    id: id("event").meta({ description: "Unique per event: deduplicate by it." }),
    type: z.literal(type),
    created_at: IsoTime,
    data,
  });
}

export const WebhookDelivery = z
  .discriminatedUnion("type", [
    delivery("lead.created", Lead).meta({ id: "LeadCreated" }),
    delivery("run.completed", Run).meta({ id: "RunCompleted" }),
    delivery("automation.status_changed", Automation).meta({ id: "AutomationStatusChanged" }),
  ])
  .meta({ id: "WebhookDelivery" });

export type Automation = z.infer<typeof Automation>;
export type AutomationStatus = z.infer<typeof AutomationStatus>;
export type AutomationType = z.infer<typeof AutomationType>;
export type Lead = z.infer<typeof Lead>;
export type LeadSource = z.infer<typeof LeadSource>;
export type Run = z.infer<typeof Run>;
export type RunStatus = z.infer<typeof RunStatus>;
export type TriggerType = z.infer<typeof TriggerType>;
export type Webhook = z.infer<typeof Webhook>;
export type WebhookEvent = z.infer<typeof WebhookEvent>;
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

/** The pagination envelope around the items of a list. */
export interface Page<T> {
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}
