import { encodeCursor } from "../../contract/cursor.ts";
import { WebhookEvent } from "../../contract/enumerations.ts";
import { AGENT, AUTOMATION, LEAD, RUN } from "../../events/samples.ts";
import type { Automation } from "../../records/automations.ts";
import type { Lead } from "../../records/leads.ts";
import type { Run } from "../../records/runs.ts";
import type { Webhook } from "../../subscriptions/subscriptions.ts";

/*
 * The sample data that all examples share. test/worker/http/document/examples.test.ts records it, sends the requests
 * and compares the responses with the examples.
 */

const CRM_AUTOMATION: Automation = {
  id: "aut_2c8w0nqk4b1x7yd5zr3h6tjmp",
  name: "Relance des devis",
  type: "crm_source",
  provider: "hubspot",
  ...AGENT,
  status: "draft",
  updated_at: "2026-03-02T16:40:08.112Z",
};

const FORM_LEAD: Lead = {
  ...LEAD,
  id: "lea_1x7cq3vd0m8k5z2rb9ty4wnhf",
  source: "lead_ads",
  name: "Karim Benali",
  email: null,
  phone: "+33600000000",
  custom_fields: {},
  created_at: "2026-03-13T17:02:51.004Z",
};

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

export const CREATION = {
  url: "https://hooks.example.com/automations",
  events: [...WebhookEvent.options],
} satisfies Partial<Webhook>;

/** The subscription that `CREATION` creates. */
export const WEBHOOK: Webhook = {
  id: "whk_7p3y9d1fz5k8r2m6x0v4c1bqs",
  ...CREATION,
  created_at: "2026-03-14T08:55:00.000Z",
  disabled_at: null,
};

/** The signing key of the subscription: an example, not a real secret. */
export const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbGFzcXVlbGE=";

/** The responses of the lists to a `limit` of as many items. */
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
