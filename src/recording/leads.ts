import { type Moment, readInput } from "../contract/platform.ts";
import { inOrder, readAs } from "../db/client.ts";
import { announce, draftEvent, isNewLead } from "../model/events.ts";
import { readLead, recordLeads, toLead } from "../model/leads.ts";
import { firstOfEach, type Recording, sum } from "./recording.ts";
import { inWorkspace, unknownWorkspace } from "./references.ts";

/** Reads a call that inserts leads and announces them; one whose reference is known stays as it is. */
export async function readLeads(input: unknown, moment: Moment): Promise<Recording> {
  const { workspaceId, leads } = readInput("recordLeads", input);
  const reported = await Promise.all(leads.map((lead) => readLead(workspaceId, lead, moment)));
  const fresh = firstOfEach(reported);
  const drafts = fresh.map((lead) => draftEvent("lead.created", toLead(lead), moment.now));
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    automationIds: [],
    leadIds: [],
    once: false,
    missing: unknownWorkspace(),
    prepare(known) {
      if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
      for (const { id } of fresh) known.leads.add(inWorkspace(workspaceId, id));
      const statements = inOrder([
        announce(workspaceId, "lead.created", drafts, isNewLead, moment.now),
        recordLeads(
          workspaceId,
          fresh.map((lead, i) => ({ ...lead, eventId: drafts[i]?.id ?? null })),
        ),
      ]);
      return readAs(statements, ([, created]) => sum(created));
    },
  };
}
