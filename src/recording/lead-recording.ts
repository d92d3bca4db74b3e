import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { LeadSource } from "../contract/enumerations.ts";
import { WorkspaceId } from "../contract/fields.ts";
import { derivedId, newEventId } from "../contract/ids.ts";
import { leads as leadsTable } from "../db/schema.ts";
import { encryptJson } from "../encryption/seal.ts";
import { announce } from "../events/outbox.ts";
import { insertLeads, isNotErased, type NewLead } from "../records/leads.ts";
import { REPORTED_PERSON } from "../records/person.ts";
import { loadDataKeyToWrite } from "../workspaces/data-keys.ts";
import {
  Agent,
  AHEAD,
  type CallContext,
  planInsertion,
  type RecordingPlan,
  ReferenceOnce,
  ReportedTime,
  reports,
  uniqueById,
} from "./record.ts";

const LeadReport = z.strictObject({
  reference: ReferenceOnce,
  source: LeadSource,
  agent: Agent,
  ...REPORTED_PERSON,
  createdAt: ReportedTime.nullish().describe(`default: now. ${AHEAD}`),
});
type LeadReport = z.output<typeof LeadReport>;

/** The input of `recordLeads`. */
export const LeadRecording = z.strictObject({
  workspaceId: WorkspaceId,
  leads: reports(LeadReport),
});

/** Plans a call that inserts leads and announces them. Stored leads stay unchanged. */
export async function planLeads(
  { workspaceId, leads }: z.output<typeof LeadRecording>,
  { env, db, now }: CallContext,
): Promise<RecordingPlan> {
  const dataKey = await loadDataKeyToWrite(db, env.ENCRYPTION_KEYS, workspaceId);
  const reported = await Promise.all(
    leads.map((report) => toNewLead(workspaceId, dataKey, report, now)),
  );
  const unique = uniqueById(reported);
  const drafts = unique.map(({ id, eventId }) => ({ id: eventId, subject: id, body: null }));
  const isNew = (id: SQL) => isNewLead(workspaceId, id);
  const announced = announce(workspaceId, "lead.created", drafts, isNew, now);
  return planInsertion(reported, announced, insertLeads(workspaceId, unique));
}

/** SQL condition: the lead with this id does not exist, and was not erased. */
export function isNewLead(workspaceId: string, id: SQL): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${leadsTable} WHERE ${leadsTable.id} = ${id})
    AND ${isNotErased(workspaceId, id)}`;
}

/** Makes the row of a reported lead; `createdAt` defaults to now. */
async function toNewLead(
  workspaceId: string,
  dataKey: CryptoKey,
  { reference, source, agent, createdAt, ...person }: LeadReport,
  now: number,
): Promise<NewLead> {
  const id = await derivedId("lead", workspaceId, reference);
  return {
    id,
    reference,
    source,
    // The agent's name is not stored: a lead shows only the id of its agent.
    agentId: await derivedId("agent", workspaceId, agent.reference),
    sealed: await encryptJson(dataKey, id, person),
    createdAt: createdAt ?? now,
    eventId: newEventId(now),
  };
}
