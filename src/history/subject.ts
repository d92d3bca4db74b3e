import { sql } from "drizzle-orm";
import { automations, events, leads } from "../db/schema.ts";
import { LEAD_AS_JSON, parseLeadRow, readPersonalData } from "../records/leads.ts";

/** The columns to select for `readSubject`, from a query with `events`. */
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
 * Reads the name of the record that an event is about: that of a lead, of an automation, or of a run's automation.
 *
 * @param dataKey the data key of the workspace, because names of leads are encrypted; null if it has none.
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
