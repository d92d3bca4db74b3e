import { derivedId } from "../contract/ids.ts";
import { readInput } from "../contract/input.ts";
import type { Moment, PlatformRecord } from "../contract/platform.ts";
import { inOrder, readAs } from "../db/client.ts";
import { announce, draftLeadEvent, IS_NEW_LEAD } from "../model/events.ts";
import { insertLeads, type ReportedLead } from "../model/leads.ts";
import { firstOfEach, type Recording, sum } from "./recording.ts";
import { unknownWorkspace } from "./references.ts";

/** Parses a call that inserts leads and announces them; those already stored stay unchanged. */
export async function parseLeads(input: unknown, moment: Moment): Promise<Recording> {
  const { workspaceId, leads } = await readInput("recordLeads", input);
  const reported = await Promise.all(leads.map((lead) => parseLead(workspaceId, lead, moment)));
  const fresh = firstOfEach(reported);
  const drafts = fresh.map(({ id }) => draftLeadEvent(id, moment.now));
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    references: [],
    leaves: { leadIds: fresh.map(({ id }) => id) },
    once: false,
    missing: unknownWorkspace(),
    statements: () =>
      readAs(
        inOrder([
          announce(workspaceId, "lead.created", drafts, IS_NEW_LEAD, moment.now),
          insertLeads(
            workspaceId,
            fresh.map((lead, i) => ({ ...lead, eventId: drafts[i]?.id ?? null })),
          ),
        ]),
        ([, created]) => sum(created),
      ),
  };
}

/** Parses a reported lead; `createdAt` defaults to when the report was sent. */
async function parseLead(
  workspaceId: string,
  { agent, ...report }: PlatformRecord<"recordLeads", "leads">,
  { sentAt, now }: Moment,
): Promise<ReportedLead> {
  return {
    id: await derivedId("lead", workspaceId, report.reference),
    reference: report.reference,
    source: report.source,
    agentId: await derivedId("agent", workspaceId, agent.reference),
    name: report.name ?? null,
    email: report.email ?? null,
    phone: report.phone ?? null,
    customFields: report.customFields ?? {},
    createdAt: report.createdAt ?? sentAt ?? now,
  };
}
