import { derivedId, newEventId } from "../../contract/ids.ts";
import type { Moment } from "../../contract/time.ts";
import { inOrder, readAs } from "../../db/client.ts";
import { sealPersonalData } from "../../encryption/personal-data.ts";
import { announce, isNewLead } from "../../webhooks/outbox.ts";
import { insertLeads, type NewLead } from "../leads.ts";
import type { ReportedPerson } from "../person.ts";
import type { LeadReport, RecordingInput } from "./inputs.ts";
import { firstOfEach, type Recording, sum } from "./recording.ts";
import { unknownWorkspace } from "./references.ts";

/** A call that inserts leads and announces them; leads that are already stored stay unchanged. */
export async function toLeadRecording(
  { workspaceId, leads }: RecordingInput<"recordLeads">,
  moment: Moment,
): Promise<Recording> {
  const reported = await Promise.all(
    leads.map((lead) => toReportedLead(workspaceId, lead, moment)),
  );
  const fresh = firstOfEach(reported);
  const drafts = fresh.map(({ id, eventId }) => ({ id: eventId, subject: id, body: null }));
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    effects: { leadIds: fresh.map(({ id }) => id) },
    hasPersonalData: true,
    async statements({ dataKey }) {
      if (!dataKey) throw unknownWorkspace();
      const recorded = await Promise.all(
        fresh.map(async ({ person, ...lead }) => ({
          ...lead,
          sealed: await sealPersonalData(dataKey, lead.id, person),
        })),
      );
      return readAs(
        inOrder([
          announce(workspaceId, "lead.created", drafts, isNewLead(workspaceId), moment.now),
          insertLeads(workspaceId, recorded),
        ]),
        ([, created]) => sum(created),
      );
    },
  };
}

/** A lead as reported: `person` is not encrypted yet. */
type ReportedLead = Omit<NewLead, "sealed"> & { person: ReportedPerson };

/** A lead as reported; `createdAt` defaults to when the report was sent. */
async function toReportedLead(
  workspaceId: string,
  { reference, source, agent, createdAt, ...person }: LeadReport,
  { sentAt, now }: Moment,
): Promise<ReportedLead> {
  return {
    id: await derivedId("lead", workspaceId, reference),
    reference,
    source,
    agentId: await derivedId("agent", workspaceId, agent.reference),
    person,
    createdAt: createdAt ?? sentAt ?? now,
    eventId: newEventId(now),
  };
}
