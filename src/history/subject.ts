import { sql } from "drizzle-orm";
import type { Database } from "../db/client.ts";
import { automations, events } from "../db/schema.ts";
import { chunk } from "../primitives/chunk.ts";
import { findLeadNames } from "../records/leads.ts";

/** The columns to select for `readSubjects`, from a query with `events`. */
export const SUBJECT = {
  leadId: events.leadId,
  // The body of a lead's event is made from its lead, so nothing is stored in it.
  recordName: sql<string | null>`CASE WHEN ${events.leadId} IS NULL THEN coalesce(
    ${events.body}->>'$.data.name',
    (SELECT ${automations.name} FROM ${automations} WHERE ${automations.id} = ${events.body}->>'$.data.automation_id')) END`.as(
    "record_name",
  ),
};

type SubjectRow = { leadId: string | null; recordName: string | null };

/** How many leads are read at once for their names: all of a page could take megabytes. */
const LEADS_AT_ONCE = 16;

/**
 * Reads the names of the records that events are about: the name of a lead, of an automation, or of a run's automation.
 *
 * @param dataKey the data key of the workspace, because names of leads are encrypted; null to read none of these names.
 * @returns for each event, null if the record has no name, was erased or cannot be decrypted.
 */
export async function readSubjects(
  db: Database,
  dataKey: CryptoKey | null,
  workspaceId: string | undefined,
  rows: SubjectRow[],
): Promise<(string | null)[]> {
  const ids = [...new Set(rows.flatMap(({ leadId }) => leadId ?? []))];
  const names = new Map<string, string | null>();
  if (dataKey && workspaceId !== undefined)
    for (const some of chunk(ids, LEADS_AT_ONCE))
      for (const [id, name] of await findLeadNames(db, dataKey, workspaceId, some))
        names.set(id, name);
  return rows.map(({ leadId, recordName }) =>
    leadId === null ? recordName : (names.get(leadId) ?? null),
  );
}
