import { sql } from "drizzle-orm";
import { automations, events, leads } from "../db/schema.ts";
import { LEAD_AS_JSON, parseLeadRow, readPersonalData } from "../records/leads.ts";

/** The columns to select for `readSubject`. They need `events` in the query. */
export const SUBJECT = {
  lead: sql<
    string | null
  >`(SELECT ${LEAD_AS_JSON} FROM ${leads} WHERE ${leads.id} = ${events.leadId})`.as("lead"),
  // The body of a lead's event is made from its lead, so nothing is stored in it.
  recordName: sql<string | null>`CASE WHEN ${events.leadId} IS NULL THEN coalesce(
    ${events.body}->>'$.data.name',
    (SELECT ${automations.name} FROM ${automations} WHERE ${automations.id} = ${events.body}->>'$.data.automation_id')) END`.as(
    "record_name",
  ),
};

/**
 * The name of the record that an event is about: a lead's, an automation's, or that of a run's automation.
 *
 * @param dataKey the workspace's, because the names of leads are stored encrypted; null if it has none.
 * @returns null if the record has no name, was erased or cannot be decrypted.
 */
export async function readSubject(
  dataKey: CryptoKey | null,
  { lead, recordName }: { lead: string | null; recordName: string | null },
): Promise<string | null> {
  if (lead === null) return recordName;
  const person = dataKey && (await readPersonalData(dataKey, parseLeadRow(lead)));
  return person?.name ?? null;
}
