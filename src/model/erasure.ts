import { type SQL, sql } from "drizzle-orm";
import { inOrder, type Statements, write } from "../db/client.ts";
import { attempts, deliveries, events, leads, runs } from "../db/schema.ts";

/*
 * What holds personal data is overwritten before it is deleted: a deleted row may stay readable in
 * the file until its place is used again, but one of the same size is written in place.
 */

/** As many bytes as the text has, that say nothing; null for none. */
function blank(text: SQL): SQL {
  return sql`CASE WHEN ${text} <> '' THEN printf('%.*c', length(CAST(${text} AS BLOB)), 'x') ELSE ${text} END`;
}

/**
 * Erases leads of the workspace, their names, addresses and fields; the events that tell of them,
 * with deliveries and attempts; and the links of their runs.
 */
export function eraseLeads(workspaceId: string, ids: string[]): Statements<unknown> {
  const named = sql`SELECT value FROM json_each(${JSON.stringify(ids)})`;
  const own = sql`workspace_id = ${workspaceId} AND id IN (${named})`;
  return inOrder([
    blankLeads(own),
    // Of leads that were recorded before their events were noted; looked for only if there are any.
    write(sql`UPDATE ${leads} SET event_id = e.id FROM ${events} AS e
      WHERE ${leads.workspaceId} = ${workspaceId} AND ${leads.id} IN (${named})
        AND ${leads.eventId} IS NULL AND e.workspace_id = ${workspaceId}
        AND e.type = 'lead.created' AND e.body->>'$.data.id' = ${leads.id}
        AND EXISTS (SELECT 1 FROM ${leads} WHERE ${own} AND event_id IS NULL)`),
    eraseEvents(
      workspaceId,
      sql`SELECT event_id FROM ${leads} WHERE ${own} AND event_id IS NOT NULL`,
    ),
    write(sql`UPDATE ${runs} SET lead_id = NULL
      WHERE lead_id IN (${named}) AND workspace_id = ${workspaceId}`),
    write(sql`DELETE FROM ${leads} WHERE ${own}`),
  ]);
}

/** Deletes events of the workspace, by their ids in `selected`, with deliveries and attempts. */
function eraseEvents(workspaceId: string, selected: SQL): Statements<unknown> {
  const theirs = sql`workspace_id = ${workspaceId} AND id IN (${selected})`;
  const owed = sql`SELECT o.value, ev.id FROM ${events} AS ev JOIN json_each(ev.owed) AS o
    WHERE ev.workspace_id = ${workspaceId} AND ev.id IN (${selected})`;
  return inOrder([
    write(sql`DELETE FROM ${attempts} WHERE (subscription_id, event_id) IN (${owed})`),
    write(sql`DELETE FROM ${deliveries} WHERE (subscription_id, event_id) IN (${owed})`),
    write(sql`UPDATE ${events} SET body = ${blank(sql`body`)} WHERE ${theirs}`),
    write(sql`DELETE FROM ${events} WHERE ${theirs}`),
  ]);
}

function blankLeads(condition: SQL): Statements<unknown> {
  return write(sql`UPDATE ${leads} SET name = ${blank(sql`name`)}, email = ${blank(sql`email`)},
    phone = ${blank(sql`phone`)}, custom_fields = ${blank(sql`custom_fields`)} WHERE ${condition}`);
}
