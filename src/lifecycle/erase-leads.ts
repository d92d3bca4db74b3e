import { sql } from "drizzle-orm";
import { ERASED_LEADS_KEPT_DAYS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { insertFrom } from "../db/builder.ts";
import { combine, type Part, type Statements } from "../db/client.ts";
import { erasedLeads, events, leads } from "../db/schema.ts";
import { isWritable } from "../db/states.ts";
import { ownedTable } from "../workspaces/table-registry.ts";
import { deleteRows } from "./erase.ts";

/**
 * Erases leads of the workspace, the links from their runs, and the events that announced them, with deliveries and
 * attempts. Whether a lead is stored or not, it is not recorded again for `ERASED_LEADS_KEPT_DAYS`.
 */
export function eraseLeadRows(
  workspaceId: string,
  ids: string[],
  now: number,
): Statements<unknown> {
  const named = sql`(SELECT value FROM json_each(${JSON.stringify(ids)}))`;
  // The `+` makes SQLite look up each id instead of scanning the workspace's leads.
  const isOwn = sql`+${leads.workspaceId} = ${workspaceId} AND ${leads.id} IN ${named}`;
  const announcesThem = sql`${events.workspaceId} = ${workspaceId}
    AND ${events.id} IN (SELECT ${leads.eventId} FROM ${leads} WHERE ${isOwn})`;
  return combine({
    events: deleteRows(ownedTable(events), announcesThem),
    leads: deleteRows(ownedTable(leads), isOwn),
    noted: insertFrom(
      erasedLeads,
      { workspaceId, id: sql`value`, erasedAt: now },
      sql`FROM ${named} WHERE true ON CONFLICT DO UPDATE SET erased_at = excluded.erased_at`,
    ),
  });
}

/** Deletes the records of leads that were erased so long ago that no queue of the platform can have them any more. */
export function deleteOldErasedLeads(now: number): Part {
  const { workspaceId, id, erasedAt } = erasedLeads;
  return sql`DELETE FROM ${erasedLeads} WHERE (${workspaceId}, ${id}) IN (
    SELECT ${workspaceId}, ${id} FROM ${erasedLeads}
    WHERE ${erasedAt} <= ${now - ERASED_LEADS_KEPT_DAYS * DAY_MS} AND ${isWritable(workspaceId)} LIMIT ${CLEANUP_MAX})`;
}
