import { z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { EVENT_TYPES, schemaName } from "../contract/event-types.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import { events, leads } from "../db/schema.ts";
import { Automation } from "../records/automations.ts";
import { decryptLead, LEAD_AS_JSON, Lead, parseLeadRow, toLead } from "../records/leads.ts";
import { Run } from "../records/runs.ts";
import { expectDataKey, type WorkspaceKey } from "../workspaces/data-keys.ts";

/** The schema of `data`, by event type. */
const DATA = {
  "run.completed": Run,
  "lead.created": Lead,
  "automation.status_changed": Automation,
} satisfies Record<WebhookEvent, z.ZodType>;

function delivery<T extends WebhookEvent>(type: T) {
  const { summary, data } = EVENT_TYPES[type];
  const shape = z.object({
    id: idField(
      "event",
      "Identifies the event. A repeated delivery has the same id, so use it to deduplicate.",
    ),
    type: z
      .literal(type)
      .openapi({ description: "The event type. It determines the shape of `data`." }),
    created_at: timeField("When the event was recorded."),
    data: DATA[type],
  });
  return shape.openapi(schemaName(type), { description: `${summary}; \`data\` is ${data}.` });
}

type Delivery = { [T in WebhookEvent]: ReturnType<typeof delivery<T>> }[WebhookEvent];

/** The body of a delivery; `type` determines the shape of `data`. */
export const WebhookDelivery = z
  .discriminatedUnion(
    "type",
    WebhookEvent.options.map(delivery) as unknown as [Delivery, ...Delivery[]],
  )
  .openapi("WebhookDelivery", {
    description: "An event as it is sent to your endpoint. `type` determines the shape of `data`.",
  });

export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

/*
 * The body of an event: the exact bytes that are signed and sent, the same in each attempt. It is stored, because a
 * run or an automation may change after its event. Only the body of `lead.created` is made from the lead's row each
 * time, because a lead never changes (a trigger rejects updates of its row). Before leads may change, the lead of an
 * event must be stored with the event, encrypted.
 *
 * A field that is added to leads therefore also appears in earlier events that are sent from then on.
 */

/** Serializes the body of an event. @param createdAt Unix milliseconds. */
export function serializeBody<T extends WebhookDelivery>(
  id: string,
  type: T["type"],
  createdAt: number,
  data: T["data"],
): string {
  return JSON.stringify({ id, type, created_at: isoTime(createdAt), data });
}

/** The fields to select for `makeBody`. */
export const BODY = {
  eventId: events.id,
  type: events.type,
  createdAt: events.createdAt,
  storedBody: events.body,
  leadId: events.leadId,
  lead: sql<
    string | null
  >`(SELECT ${LEAD_AS_JSON} FROM ${leads} WHERE ${leads.id} = ${events.leadId})`,
};

/** The row that `BODY` selects. */
export interface BodyRow extends Pick<typeof events.$inferSelect, "type" | "createdAt" | "leadId"> {
  eventId: string;
  storedBody: string;
  /** The lead as JSON; null if there is none. */
  lead: string | null;
}

/** Thrown if the lead of an event cannot be decrypted, or was deleted, so that the event has no body. */
export class UnreadableEvent extends Error {}

/**
 * Returns the body of an event, stored or made from its lead.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @throws UnreadableEvent; Error like `expectDataKey`.
 */
export async function makeBody(
  keys: string,
  owner: WorkspaceKey,
  { eventId, type, createdAt, storedBody, leadId, lead }: BodyRow,
): Promise<string> {
  if (leadId === null) return storedBody;
  const data =
    lead && toLead(await decryptLead(await expectDataKey(keys, owner), parseLeadRow(lead)));
  if (!data) throw new UnreadableEvent(`${leadId} cannot be decrypted, or is gone`);
  return serializeBody(eventId, type, createdAt, data);
}
