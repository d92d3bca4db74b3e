import { type Moment, readInput } from "../contract/platform.ts";
import { inOrder } from "../db/client.ts";
import { announce, draftEvent, IS_NEW_LEAD } from "../model/events.ts";
import { insertLeads, parseLead, toLead } from "../model/leads.ts";
import { firstOfEach, type Recording } from "./recording.ts";
import { unknownWorkspace } from "./references.ts";

/** Parses a call that inserts leads and announces them; one whose reference is known stays as it is. */
export async function parseLeads(input: unknown, moment: Moment): Promise<Recording> {
  const { workspaceId, leads } = readInput("recordLeads", input);
  const reported = await Promise.all(leads.map((lead) => parseLead(workspaceId, lead, moment)));
  const fresh = firstOfEach(reported);
  const drafts = fresh.map((lead) => draftEvent("lead.created", toLead(lead), moment.now));
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    references: [],
    leaves: { leadIds: fresh.map(({ id }) => id) },
    once: false,
    missing: unknownWorkspace(),
    statements: () =>
      inOrder([
        announce(workspaceId, "lead.created", drafts, IS_NEW_LEAD, moment.now),
        insertLeads(
          workspaceId,
          fresh.map((lead, i) => ({ ...lead, eventId: drafts[i]?.id ?? null })),
        ),
      ]),
  };
}
