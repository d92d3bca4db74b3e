import type { AutomationType } from "../../contract/enumerations.ts";
import { isId } from "../../contract/ids.ts";
import { InputError } from "../../contract/input-error.ts";
import { commit, type Database, inOrder } from "../../db/client.ts";
import { causeOf } from "../../db/errors.ts";
import { findWorkspaces } from "../../workspaces/workspaces.ts";
import { findAutomations } from "../automations.ts";
import { findErasedLeads, findLeads } from "../leads.ts";

/** A record that another record refers to. */
export interface Reference {
  kind: "automation" | "lead";
  id: string;
  /** Its path in the input. */
  path: string;
}

/** What a recording refers to; all of it must be in its workspace. */
export interface References {
  workspaceId: string;
  references?: Reference[];
  effects?: Effects;
}

/** What a recording adds or removes, for later recordings in the batch. */
export interface Effects {
  automations?: { id: string; type: AutomationType }[];
  removedAutomationIds?: string[];
  leadIds?: string[];
}

/** What recordings may refer to: stored rows, and what earlier recordings in the batch add. */
export interface Known {
  /**
   * The data keys of the workspaces that the database knows, encrypted, by workspace id; null for those
   * that do not live there.
   */
  workspaces: Map<string, string | null>;
  automations: KnownAutomations;
  /** Keys from `inWorkspace`. */
  leads: Set<string>;
  /** Leads that were erased, even if the recordings report them again. Keys from `inWorkspace`. */
  erasedLeads: Set<string>;
}

/** Automations that runs may refer to, keyed by `inWorkspace`. */
export type KnownAutomations = Map<
  string,
  {
    type: AutomationType;
    /** The stored row's generation; `null` if only an earlier recording in the batch adds it. */
    generation: number | null;
  }
>;

/** A key for an id within its workspace: the same id in another workspace is unknown. */
export function inWorkspace(workspaceId: string, id: string): string {
  return `${workspaceId}/${id}`;
}

/** Looks up everything the recordings refer to, in one round trip. */
export async function findReferenced(db: Database, recordings: References[]): Promise<Known> {
  const pairsOf = (kind: "automation" | "lead") => {
    const pairs = recordings.flatMap(({ workspaceId, references = [] }) =>
      references
        .filter((reference) => reference.kind === kind && isId(kind, reference.id))
        .map(({ id }) => ({ workspaceId, id })),
    );
    return [
      ...new Map(pairs.map((pair) => [inWorkspace(pair.workspaceId, pair.id), pair])).values(),
    ];
  };
  const recordedLeads = recordings.flatMap(({ workspaceId, effects }) =>
    (effects?.leadIds ?? []).map((id) => ({ workspaceId, id })),
  );
  const workspaceIds = new Set(recordings.map(({ workspaceId }) => workspaceId));
  const [workspaces, automations, leads, erasedLeads] = await commit(
    db,
    inOrder([
      findWorkspaces([...workspaceIds].filter((id) => isId("workspace", id))),
      findAutomations(pairsOf("automation")),
      findLeads(pairsOf("lead")),
      findErasedLeads([...pairsOf("lead"), ...recordedLeads]),
    ]),
  );
  return {
    workspaces: new Map(workspaces.map(({ id, dataKey }) => [id, dataKey])),
    automations: new Map(
      automations.map(({ workspaceId, id, type, generation }) => [
        inWorkspace(workspaceId, id),
        { type, generation },
      ]),
    ),
    leads: new Set(leads.map(({ workspaceId, id }) => inWorkspace(workspaceId, id))),
    erasedLeads: new Set(erasedLeads.map(({ workspaceId, id }) => inWorkspace(workspaceId, id))),
  };
}

/** A record refers to an automation or a lead that is not, or not yet, in its workspace. */
export class MissingReference extends InputError {}

/**
 * Checks a recording's references.
 *
 * @throws InputError for an unknown workspace; MissingReference for a missing record.
 */
export function checkReferences({ workspaceId, references = [] }: References, known: Known): void {
  if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
  for (const { kind, id, path } of references) {
    const key = inWorkspace(workspaceId, id);
    const isThere =
      kind === "lead"
        ? known.leads.has(key) || known.erasedLeads.has(key)
        : known.automations.has(key);
    if (!isThere) throw new MissingReference(path, `no such ${kind} in this workspace`);
  }
}

/** Applies to `known` what a recording adds and removes. */
export function addEffects(
  known: Known,
  workspaceId: string,
  { automations = [], removedAutomationIds = [], leadIds = [] }: Effects = {},
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

export function unknownWorkspace(): InputError {
  return new InputError("workspaceId", "no such workspace");
}

/**
 * Awaits a write that refers to other rows.
 *
 * @throws InputError `missing` if one of those rows does not exist.
 */
export async function refuseMissing<T>(
  write: Promise<T>,
  missing: InputError = unknownWorkspace(),
): Promise<T> {
  return write.catch((thrown: unknown) => {
    const error = causeOf(thrown);
    const isMissing =
      error instanceof Error &&
      // A run takes its generation from its automation, so a missing automation leaves it null.
      /FOREIGN KEY constraint failed|NOT NULL constraint failed: runs\.generation/.test(
        error.message,
      );
    throw isMissing ? missing : error;
  });
}
