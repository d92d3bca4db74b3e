import { isId } from "../contract/ids.ts";
import { InputError } from "../contract/input-error.ts";
import type { AutomationType } from "../contract/resources.ts";
import { commit, type Database, inOrder } from "../db/client.ts";
import { findAutomations } from "../model/automations.ts";
import { findLeads } from "../model/leads.ts";
import { findWorkspaces } from "../model/workspaces.ts";

/** A record that another one names. */
export interface Reference {
  kind: "automation" | "lead";
  id: string;
  /** Where the input names it. */
  path: string;
}

/** What a recording refers to, all of it in one workspace. */
export interface References {
  workspaceId: string;
  references: Reference[];
}

/** What a recording leaves for those behind it to refer to. */
export interface Leftovers {
  automations?: { id: string; type: AutomationType }[];
  removedAutomationIds?: string[];
  leadIds?: string[];
}

/** What recordings may refer to: the database's rows, and what the recordings before them leave. */
export interface Known {
  workspaces: Set<string>;
  automations: KnownAutomations;
  /** As `inWorkspace` writes them. */
  leads: Set<string>;
}

/** Automations that runs may refer to, by `inWorkspace`. */
export type KnownAutomations = Map<
  string,
  {
    type: AutomationType;
    /** That of the database's row; `null` when it is there only by a recording before. */
    generation: number | null;
  }
>;

/** An id that counts in one workspace only: elsewhere it is as unknown as any other. */
export function inWorkspace(workspaceId: string, id: string): string {
  return `${workspaceId}/${id}`;
}

/** Looks up all that the recordings refer to, in one round trip. */
export async function lookUp(db: Database, recordings: References[]): Promise<Known> {
  const pairsOf = (kind: "automation" | "lead") => {
    const pairs = recordings.flatMap(({ workspaceId, references }) =>
      references
        .filter((reference) => reference.kind === kind && isId(kind, reference.id))
        .map(({ id }) => ({ workspaceId, id })),
    );
    return [
      ...new Map(pairs.map((pair) => [inWorkspace(pair.workspaceId, pair.id), pair])).values(),
    ];
  };
  const workspaceIds = new Set(recordings.map(({ workspaceId }) => workspaceId));
  const [workspaces, automations, leads] = await commit(
    db,
    inOrder([
      findWorkspaces([...workspaceIds].filter((id) => isId("workspace", id))),
      findAutomations(pairsOf("automation")),
      findLeads(pairsOf("lead")),
    ]),
  );
  return {
    workspaces: new Set(workspaces.map(({ id }) => id)),
    automations: new Map(
      automations.map(({ workspaceId, id, type, generation }) => [
        inWorkspace(workspaceId, id),
        { type, generation },
      ]),
    ),
    leads: new Set(leads.map(({ workspaceId, id }) => inWorkspace(workspaceId, id))),
  };
}

/** A record refers to an automation or a lead that is not, or not yet, in its workspace. */
export class MissingReference extends InputError {}

/**
 * Checks what a recording refers to.
 *
 * @throws InputError for a workspace that nobody knows; MissingReference for a record that is not there.
 */
export function checkReferences({ workspaceId, references }: References, known: Known): void {
  if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
  for (const { kind, id, path } of references) {
    const there = kind === "lead" ? known.leads : known.automations;
    if (!there.has(inWorkspace(workspaceId, id)))
      throw new MissingReference(`${path}: no such ${kind} in this workspace`);
  }
}

/** Adds to `known` what a recording leaves, and takes away what it removes. */
export function addLeftovers(
  known: Known,
  workspaceId: string,
  { automations = [], removedAutomationIds = [], leadIds = [] }: Leftovers,
): void {
  for (const { id, type } of automations) {
    const key = inWorkspace(workspaceId, id);
    known.automations.set(key, {
      type,
      generation: known.automations.get(key)?.generation ?? null,
    });
  }
  for (const id of removedAutomationIds) known.automations.delete(inWorkspace(workspaceId, id));
  for (const id of leadIds) known.leads.add(inWorkspace(workspaceId, id));
}

/** The fault of an input whose workspace nobody knows. */
export function unknownWorkspace(): InputError {
  return new InputError("workspaceId: no such workspace");
}

/**
 * A write that names other rows: the database knows whether they are there.
 *
 * @throws InputError `missing` when they are not.
 */
export async function referring<T>(
  write: Promise<T>,
  missing: InputError = unknownWorkspace(),
): Promise<T> {
  return write.catch((error: unknown) => {
    const isMissing =
      error instanceof Error &&
      // A run is given the generation of its automation.
      /FOREIGN KEY constraint failed|NOT NULL constraint failed: runs\.generation/.test(
        error.message,
      );
    throw isMissing ? missing : error;
  });
}
