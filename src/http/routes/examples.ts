import { encodeCursor } from "../../contract/cursor.ts";
import type { Automation } from "../../records/automations.ts";
import type { Lead } from "../../records/leads.ts";
import type { Run } from "../../records/runs.ts";
import type { Webhook } from "../../webhooks/subscriptions.ts";

/*
 * The sample data that all examples share. test/worker/http/document/examples.test.ts records it, sends
 * the requests and compares the answers with the examples.
 */

const AGENT = { agent_id: "agt_36za4osfnzo35ckmhslm0xz7u", agent_name: "Agence Lumière" };

/** An active automation. */
export const AUTOMATION: Automation = {
  id: "aut_f0jiad8b5wgl2n2n7fvlz8msa",
  name: "Réponse aux commentaires – Agence Lumière",
  type: "social_comments",
  provider: "instagram",
  ...AGENT,
  status: "active",
  updated_at: "2026-03-14T09:26:53.589Z",
};

/** The same automation after it was paused. */
export const PAUSED = {
  ...AUTOMATION,
  status: "paused",
  updated_at: "2026-03-14T10:02:17.204Z",
} satisfies Automation;

/** An older automation. */
const CRM_AUTOMATION: Automation = {
  id: "aut_2c8w0nqk4b1x7yd5zr3h6tjmp",
  name: "Relance des devis",
  type: "crm_source",
  provider: "hubspot",
  ...AGENT,
  status: "draft",
  updated_at: "2026-03-02T16:40:08.112Z",
};

/** A lead from a comment. */
const LEAD: Lead = {
  id: "lea_9gmb2r1swpb7za0zdq7tfmpyi",
  source: "social",
  agent_id: AGENT.agent_id,
  name: "Camille Durand",
  email: "camille.durand@example.com",
  phone: null,
  custom_fields: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
  created_at: "2026-03-14T09:31:05.420Z",
};

/** An older lead, from a form. */
const FORM_LEAD: Lead = {
  id: "lea_1x7cq3vd0m8k5z2rb9ty4wnhf",
  source: "lead_ads",
  agent_id: AGENT.agent_id,
  name: "Karim Benali",
  email: null,
  phone: "+33600000000",
  custom_fields: {},
  created_at: "2026-03-13T17:02:51.004Z",
};

/** The run that captured the first lead. */
const RUN: Run = {
  id: "run_5su0mdisn1dlh83kncdyrb2za",
  automation_id: AUTOMATION.id,
  status: "success",
  trigger_type: "comment",
  occurred_at: "2026-03-14T09:31:05.961Z",
  actions: [
    { type: "reply_to_comment", status: "success" },
    { type: "send_message", status: "success" },
  ],
  lead_id: LEAD.id,
};

/** An earlier run, which failed in part and captured no lead. */
const PARTIAL_RUN: Run = {
  id: "run_0ek7v2m9xq4t1z8ybw6c3hjnd",
  automation_id: AUTOMATION.id,
  status: "partial",
  trigger_type: "comment",
  occurred_at: "2026-03-14T09:12:44.307Z",
  actions: [
    { type: "reply_to_comment", status: "success" },
    { type: "send_message", status: "failed" },
  ],
  lead_id: null,
};

/** The body of a request to subscribe. */
export const CREATION = {
  url: "https://hooks.example.com/automations",
  events: ["lead.created", "run.completed", "automation.status_changed"],
} satisfies Partial<Webhook>;

/** The subscription that this creates. */
export const WEBHOOK: Webhook = {
  id: "whk_7p3y9d1fz5k8r2m6x0v4c1bqs",
  ...CREATION,
  created_at: "2026-03-14T08:55:00.000Z",
  disabled_at: null,
};

/** The signing key of the subscription: an example, not a real secret. */
export const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbGFzcXVlbGE=";

/** The lists' answers to `limit=2`. */
export const PAGES = {
  automations: { data: [AUTOMATION, CRM_AUTOMATION], has_more: false, next_cursor: null },
  leads: {
    data: [LEAD, FORM_LEAD],
    has_more: true,
    next_cursor: encodeCursor("leads", {
      at: Date.parse(FORM_LEAD.created_at),
      id: FORM_LEAD.id,
    }),
  },
  runs: { data: [RUN, PARTIAL_RUN], has_more: false, next_cursor: null },
  webhooks: { data: [WEBHOOK], has_more: false, next_cursor: null },
};

/** The sample events, as delivered. */
export const DELIVERIES = {
  "lead.created": {
    id: "evt_536po8x4ssa80u8pr8h9b718j",
    type: "lead.created",
    created_at: "2026-03-14T09:31:05.688Z",
    data: LEAD,
  },
  "run.completed": {
    id: "evt_3b6xyhi7jvko3njeskvmrui0h",
    type: "run.completed",
    created_at: "2026-03-14T09:31:06.133Z",
    data: RUN,
  },
  "automation.status_changed": {
    id: "evt_0q2m5x8c1v7b4n9k3j6h0g2f5",
    type: "automation.status_changed",
    created_at: PAUSED.updated_at,
    data: PAUSED,
  },
} as const;
