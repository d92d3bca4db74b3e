import { derivedId, newEventId } from "../../contract/ids.ts";
import { readAs, transaction } from "../../db/client.ts";
import { sealPersonalData } from "../../encryption/personal-data.ts";
import { announce, isNewLead } from "../../webhooks/outbox.ts";
import { insertLeads, type NewLead } from "../leads.ts";
import type { ReportedPerson } from "../person.ts";
import type { LeadReport, RecordingInput } from "./inputs.ts";
import { firstOfEach, type Recording } from "./recording.ts";

/** A call that inserts leads and announces them; leads that are already stored stay unchanged. */
export async function toLeadRecording(
  { workspaceId, leads }: RecordingInput<"recordLeads">,
  now: number,
): Promise<Recording> {
  const reported = await Promise.all(leads.map((lead) => toReportedLead(workspaceId, lead, now)));
  const fresh = firstOfEach(reported);
  const drafts = fresh.map(({ id, eventId }) => ({ id: eventId, subject: id, body: null }));
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    hasPersonalData: true,
    async statements(_, dataKey) {
      const recorded = await Promise.all(
        fresh.map(async ({ person, ...lead }) => ({
          ...lead,
          sealed: await sealPersonalData(dataKey as CryptoKey, lead.id, person),
        })),
      );
      return readAs(
        transaction({
          events: announce(workspaceId, "lead.created", drafts, isNewLead(workspaceId), now),
          created: insertLeads(workspaceId, recorded),
        }),
        ({ created }) => created,
      );
    },
  };
}

/** A lead as reported: `person` is not encrypted yet. */
type ReportedLead = Omit<NewLead, "sealed"> & { person: ReportedPerson };

/** A lead as reported; `createdAt` defaults to now. */
async function toReportedLead(
  workspaceId: string,
  { reference, source, agent, createdAt, ...person }: LeadReport,
  now: number,
): Promise<ReportedLead> {
  return {
    id: await derivedId("lead", workspaceId, reference),
    reference,
    source,
    agentId: await derivedId("agent", workspaceId, agent.reference),
    person,
    createdAt: createdAt ?? now,
    eventId: newEventId(now),
  };
}
