import { and, type Column, eq, inArray, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { inOrder, type Statements } from "../db/client.ts";
import { events, leads, runs } from "../db/schema.ts";
import { deleteDeliveries } from "../webhooks/endings.ts";
import { resize } from "../webhooks/event-size.ts";

/*
 * Personal data is overwritten before it is deleted: a deleted row may stay readable in the file
 * until its space is reused, but an update of the same size happens in place. SQL cannot reach
 * copies that the database left behind when it moved rows between pages.
 */

/** A filler of the same number of bytes; null stays null. */
export function blank(text: Column): SQL {
  if (text.getSQLType() === "blob") return sql`zeroblob(octet_length(${text}))`;
  return sql`CASE WHEN ${text} <> '' THEN printf('%.*c', length(CAST(${text} AS BLOB)), 'x') ELSE ${text} END`;
}

/** Overwrites the personal data of a lead. */
const BLANK_LEAD = { sealed: blank(leads.sealed) };

/** Overwrites the personal data of an event. */
const BLANK_EVENT = { body: blank(events.body) };

/**
 * Erases leads of the workspace with their names, addresses and fields; the events that announced
 * them, with deliveries and attempts; and the links from their runs.
 */
export function eraseLeads(workspaceId: string, ids: string[]): Statements<unknown> {
  const named = sql`(SELECT value FROM json_each(${JSON.stringify(ids)}))`;
  // The `+` makes SQLite look up each id instead of scanning the workspace's leads.
  const isOwn = sql`+${leads.workspaceId} = ${workspaceId} AND ${leads.id} IN ${named}`;
  return inOrder([
    qb.update(leads).set(BLANK_LEAD).where(isOwn),
    eraseEvents(workspaceId, qb.select({ id: leads.eventId }).from(leads).where(isOwn).getSQL()),
    qb
      .update(runs)
      .set({ leadId: null })
      .where(and(inArray(runs.leadId, named), eq(runs.workspaceId, workspaceId))),
    qb.delete(leads).where(isOwn),
  ]);
}

/** Erases the workspace's events with the ids in `selected`, with their deliveries and attempts. */
function eraseEvents(workspaceId: string, selected: SQL): Statements<unknown> {
  const isSelected = sql`${events.workspaceId} = ${workspaceId} AND ${events.id} IN (${selected})`;
  return inOrder([
    deleteDeliveries(
      sql`SELECT o.value, ${events.id} FROM ${events} JOIN json_each(${events.owed}) AS o WHERE ${isSelected}`,
    ),
    resize(-1, sql`FROM ${events} WHERE ${isSelected}`),
    qb.update(events).set(BLANK_EVENT).where(isSelected),
    qb.delete(events).where(isSelected),
  ]);
}
