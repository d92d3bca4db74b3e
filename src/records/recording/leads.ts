import { derivedId, newEventId } from "../../contract/ids.ts";
import { inOrder, readAs } from "../../db/client.ts";
import { sealUnder } from "../../encryption/personal-data.ts";
import { announce, isNewLead } from "../../events/outbox.ts";
import { loadDataKeyToWrite } from "../../workspaces/data-keys.ts";
import { insertLeads, type NewLead } from "../leads.ts";
import { type CallContext, type CheckedCall, uniqueById } from "./checked-call.ts";
import type { LeadReport, RecordingInput } from "./inputs.ts";

/** Checks a call that inserts leads and announces them. Stored leads stay unchanged. */
export async function checkLeads(
  { workspaceId, leads }: RecordingInput<"recordLeads">,
  { env, db, now }: CallContext,
): Promise<CheckedCall> {
  const dataKey = await loadDataKeyToWrite(db, env.ENCRYPTION_KEYS, workspaceId);
  const recorded = await Promise.all(
    leads.map((lead) => toNewLead(workspaceId, dataKey, lead, now)),
  );
  const unique = uniqueById(recorded);
  const drafts = unique.map(({ id, eventId }) => ({ id: eventId, subject: id, body: null }));
  const statements = inOrder({
    // Announced first, because the condition is that the lead is not stored yet.
    events: announce(workspaceId, "lead.created", drafts, isNewLead(workspaceId), now),
    created: insertLeads(workspaceId, unique),
  });
  return {
    ids: recorded.map(({ id }) => id),
    statements: readAs(statements, ({ created }) => created),
  };
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
    agentId: await derivedId("agent", workspaceId, agent.reference),
    sealed: await sealUnder(dataKey, id, person),
    createdAt: createdAt ?? now,
    eventId: newEventId(now),
  };
}
