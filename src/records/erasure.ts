import { and, type Column, eq, inArray, type SQL, sql } from "drizzle-orm";
import { DAY_MS } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { CLEANUP_MAX, type Executable, inOrder, type Statements } from "../db/client.ts";
import { attempts, deliveries, erasedLeads, events, leads, runs } from "../db/schema.ts";
import { deleteDeliveries } from "../webhooks/endings.ts";
import { resize, WHOLE_BYTES } from "../webhooks/event-size.ts";
import { isWritable } from "../workspaces/moves.ts";

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

const BLANK_LEAD = { sealed: blank(leads.sealed) };

const BLANK_EVENT = { body: blank(events.body) };

/**
 * How long an erased lead cannot be recorded again: as long as a queue may hold it, which is half a day
 * of retries and then fourteen days as a dead letter.
 */
const ERASED_KEPT_MS = 15 * DAY_MS;

/**
 * Erases leads of the workspace, the events that announced them, with deliveries and attempts, and the
 * links from their runs. Whether they are stored or not, they are not recorded again for a while.
 */
export function eraseLeads(workspaceId: string, ids: string[], now: number): Statements<unknown> {
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
    insertFrom(
      erasedLeads,
      { workspaceId, id: sql`value`, erasedAt: now },
      sql`FROM ${named} WHERE true ON CONFLICT DO UPDATE SET erased_at = excluded.erased_at`,
    ),
  ]);
}

/** Forgets leads that were erased so long ago that no queue holds them any more. */
export function forgetErasedLeads(now: number): Executable {
  const { workspaceId, id, erasedAt } = erasedLeads;
  return sql`DELETE FROM ${erasedLeads} WHERE (${workspaceId}, ${id}) IN (
    SELECT ${workspaceId}, ${id} FROM ${erasedLeads}
    WHERE ${erasedAt} <= ${now - ERASED_KEPT_MS} AND ${isWritable(workspaceId)} LIMIT ${CLEANUP_MAX})`;
}

/** Erases the workspace's events with the ids in `selected`, with their deliveries and attempts. */
function eraseEvents(workspaceId: string, selected: SQL): Statements<unknown> {
  const isSelected = sql`${events.workspaceId} = ${workspaceId} AND ${events.id} IN (${selected})`;
  const owed = sql`SELECT o.value, ${events.id} FROM ${events} JOIN json_each(${events.owed}) AS o WHERE ${isSelected}`;
  return inOrder([
    resize(-1, sql`FROM ${events} WHERE ${isSelected}`, WHOLE_BYTES),
    ...[attempts, deliveries].map((table) =>
      qb
        .update(table)
        .set({ response: blank(table.response) })
        .where(
          sql`${table.response} IS NOT NULL AND (${table.subscriptionId}, ${table.eventId}) IN (${owed})`,
        ),
    ),
    deleteDeliveries(owed),
    qb.update(events).set(BLANK_EVENT).where(isSelected),
    qb.delete(events).where(isSelected),
  ]);
}
