import { sql } from "drizzle-orm";
import type { WebhookDelivery } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { events, leads } from "../db/schema.ts";
import { LEAD_AS_JSON, leadFromJson, toLead } from "./leads.ts";

/*
 * The body of an event: the exact bytes that are signed and posted, the same at each attempt. It is
 * stored, except for `lead.created`: a lead never changes, so its row is all that is needed to write
 * the body again. A run or an automation may have changed since its event.
 *
 * A field that is added to leads is therefore also in events that were recorded before, and are posted
 * or redelivered after it.
 */

/** Writes the body of an event. @param createdAt Unix milliseconds. */
export function writeBody<T extends WebhookDelivery>(
  id: string,
  type: T["type"],
  createdAt: number,
  data: T["data"],
): string {
  return JSON.stringify({ id, type, created_at: isoTime(createdAt), data });
}

/** What a query selects of an event for `bodyOf`. */
export const BODY = {
  eventId: events.id,
  createdAt: events.createdAt,
  storedBody: events.body,
  leadId: events.leadId,
  lead: sql<
    string | null
  >`(SELECT ${LEAD_AS_JSON} FROM ${leads} WHERE ${leads.id} = ${events.leadId})`,
};

/** An event, with what `BODY` selects of it. */
export interface BodyRow extends Pick<typeof events.$inferSelect, "createdAt" | "leadId"> {
  eventId: string;
  storedBody: string | null;
  /** Its lead as JSON; null if there is none, or it was not read. */
  lead: string | null;
}

/** The body of an event; null if what it is made from was not read, or is there no more. */
export function bodyOf({ eventId, createdAt, storedBody, leadId, lead }: BodyRow): string | null {
  if (leadId === null) return storedBody;
  return lead && writeBody(eventId, "lead.created", createdAt, toLead(leadFromJson(lead)));
}
