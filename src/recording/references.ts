import { InputError } from "../contract/input.ts";
import { type Database, query } from "../db/client.ts";
import { selectAutomations } from "../records/automations.ts";
import { selectErasedLeads, selectLeads } from "../records/leads.ts";
import { unknownWorkspace } from "../workspaces/placement.ts";
import { selectWorkspaces } from "../workspaces/workspaces.ts";

/** A record that another record refers to. */
export interface RecordReference {
  kind: "automation" | "lead";
  id: string;
  /** Its path in the input. */
  path: string;
}

/**
 * Looks up a workspace and the records in it that a recording refers to, in one round trip.
 *
 * @returns the ids of the leads among them that were erased. Runs lose their link to them.
 * @throws InputError for an unknown workspace or a record that is not in it.
 */
export async function findReferenced(
  db: Database,
  workspaceId: string,
  references: RecordReference[],
): Promise<Set<string>> {
  const idsOf = (kind: RecordReference["kind"]) => [
    ...new Set(references.filter((one) => one.kind === kind).map(({ id }) => id)),
  ];
  const found = await query(db, {
    workspaces: selectWorkspaces([workspaceId]),
    automations: selectAutomations(workspaceId, idsOf("automation")),
    leads: selectLeads(workspaceId, idsOf("lead")),
    erasedLeads: selectErasedLeads(workspaceId, idsOf("lead")),
  });
  if (found.workspaces.length === 0) throw unknownWorkspace();
  const automations = new Set(found.automations.map(({ id }) => id));
  const leads = new Set(found.leads.map(({ id }) => id));
  const erasedLeads = new Set(found.erasedLeads.map(({ id }) => id));
  for (const { kind, id, path } of references) {
    const isKnown = kind === "lead" ? leads.has(id) || erasedLeads.has(id) : automations.has(id);
    if (!isKnown) throw new InputError(path, `no such ${kind} in this workspace`);
  }
  return erasedLeads;
}
