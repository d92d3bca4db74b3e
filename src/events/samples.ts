/*
 * Sample records and events, for test events, the portal, and the examples of the OpenAPI document. The portal's
 * page is compiled with them, so they import no schema.
 */
import type { WebhookEvent } from "../contract/enumerations.ts";
import { mapEventTypes } from "../contract/event-types.ts";

export const AGENT = { agent_id: "agt_36za4osfnzo35ckmhslm0xz7u", agent_name: "Agence Lumière" };

export const AUTOMATION = {
  id: "aut_f0jiad8b5wgl2n2n7fvlz8msa",
  name: "Réponse aux commentaires – Agence Lumière",
  type: "social_comments" as const,
  provider: "instagram",
  ...AGENT,
  status: "active" as const,
  updated_at: "2026-03-14T09:26:53.589Z",
};

export const PAUSED = {
  ...AUTOMATION,
  status: "paused" as const,
  updated_at: "2026-03-14T10:02:17.204Z",
};

export const LEAD = {
  id: "lea_9gmb2r1swpb7za0zdq7tfmpyi",
  source: "social" as const,
  agent_id: AGENT.agent_id,
  name: "Camille Durand",
  email: "camille.durand@example.com",
  phone: null,
  custom_fields: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
  created_at: "2026-03-14T09:31:05.420Z",
};

export const RUN = {
  id: "run_5su0mdisn1dlh83kncdyrb2za",
  automation_id: AUTOMATION.id,
  status: "success" as const,
  trigger_type: "comment" as const,
  occurred_at: "2026-03-14T09:31:05.961Z",
  actions: [
    { type: "reply_to_comment", status: "success" },
    { type: "send_message", status: "success" },
  ],
  lead_id: LEAD.id,
};

const HARD_TEXT = `L'Été & <Fils> : "100 %" \\ / 🏡 e\u0301 \u2028\u2029\t`;

/**
 * One sample per event type. `data` is what the docs show. `hard` replaces fields of it in test events, with values
 * that serializers write differently.
 */
const SAMPLES = {
  "run.completed": {
    id: "evt_3b6xyhi7jvko3njeskvmrui0h",
    created_at: "2026-03-14T09:31:06.133Z",
    data: RUN,
    hard: { actions: [...RUN.actions, { type: HARD_TEXT, status: "" }, {}] },
  },
  "lead.created": {
    id: "evt_536po8x4ssa80u8pr8h9b718j",
    created_at: "2026-03-14T09:31:05.688Z",
    data: LEAD,
    hard: {
      name: "Camille O'Brien & Fils",
      custom_fields: {
        ...LEAD.custom_fields,
        page: "https://www.example.com/biens?type=maison&ville=<Orléans>",
        note: HARD_TEXT,
        tags: {},
        rooms: [["séjour", 32.5], [], [{}, null]],
        numbers: [0.1, 1e-7, Number.MAX_SAFE_INTEGER],
        visit_at: "2026-03-14T09:30:00.000Z",
        "": "",
      },
    },
  },
  "automation.status_changed": {
    id: "evt_0q2m5x8c1v7b4n9k3j6h0g2f5",
    created_at: PAUSED.updated_at,
    data: PAUSED,
    hard: { name: `${PAUSED.name} ${HARD_TEXT}` },
  },
} satisfies Record<WebhookEvent, object>;

type Samples = typeof SAMPLES;
type Sample<T extends WebhookEvent> = { type: T } & Omit<Samples[T], "hard">;

/** The sample events that the docs show. */
export const DELIVERIES = mapEventTypes((_, type) => {
  const { id, created_at, data } = SAMPLES[type];
  return { id, type, created_at, data };
}) as { [T in WebhookEvent]: Sample<T> };

/**
 * The sample events of tests. A webhook handler that parses and serializes a body before it verifies the signature
 * rejects them.
 */
export const HARD_DELIVERIES = mapEventTypes((_, type) => {
  const { hard } = SAMPLES[type];
  return { ...DELIVERIES[type], data: { ...DELIVERIES[type].data, ...hard } };
}) as { [T in WebhookEvent]: Sample<T> & { data: Samples[T]["hard"] } };

/**
 * Writes JSON as no serializer does. A webhook handler that parses a body and serializes it again, even in JavaScript
 * as the service does, does not get the same bytes.
 */
export function writeUnusually(value: unknown): string {
  return JSON.stringify(value, null, 1)
    .replace(/(\d\.\d+)(,?)$/gm, "$10$2")
    .replaceAll('": ', '" : ')
    .replaceAll("/", "\\/")
    .replaceAll("é", "\\u00e9")
    .replace(/\n */g, " ");
}
