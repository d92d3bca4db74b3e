import { InputError } from "../contract/input-error.ts";
import { type Moment, readInput } from "../contract/platform.ts";
import { inOrder, readAs } from "../db/client.ts";
import { shows, type Visibility } from "../model/automations.ts";
import { announce, draftEvent } from "../model/events.ts";
import { isNewRun, type ReportedRun, readRun, recordRuns, toRun } from "../model/runs.ts";
import { firstOfEach, type Recording, sum } from "./recording.ts";
import { inWorkspace, type Known, MissingReference, unknownWorkspace } from "./references.ts";

/** Reads a call that inserts runs and announces them; one whose reference is known stays as it is. */
export async function readRuns(
  input: unknown,
  moment: Moment,
  visibility: Visibility,
): Promise<Recording> {
  const { workspaceId, runs } = readInput("recordRuns", input);
  const reported = await Promise.all(runs.map((run) => readRun(workspaceId, run, moment)));
  const fresh = firstOfEach(reported);
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    automationIds: reported.map(({ automationId }) => automationId),
    leadIds: reported.flatMap(({ leadId }) => leadId ?? []),
    once: false,
    missing: new InputError("runs: an automation that they name has just been removed"),
    prepare(known) {
      if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
      checkReferences(workspaceId, reported, known);
      const automationOf = ({ automationId }: ReportedRun) =>
        known.automations.get(inWorkspace(workspaceId, automationId));
      const found = fresh.map((run) => ({
        ...run,
        generation: automationOf(run)?.generation ?? null,
      }));
      const drafts = fresh
        .filter((run) => shows(visibility, automationOf(run)?.type))
        .map((run) => draftEvent("run.completed", toRun(run), moment.now));
      const statements = inOrder([
        announce(workspaceId, "run.completed", drafts, isNewRun(found), moment.now),
        recordRuns(workspaceId, found),
      ]);
      return readAs(statements, ([, created]) => sum(created));
    },
  };
}

/** @throws MissingReference for an automation or a lead that is not the workspace's. */
function checkReferences(workspaceId: string, runs: ReportedRun[], known: Known): void {
  for (const [index, { automationId, leadId }] of runs.entries()) {
    if (!known.automations.has(inWorkspace(workspaceId, automationId)))
      throw new MissingReference(
        `runs[${index}].automationId: no such automation in this workspace`,
      );
    if (leadId !== null && !known.leads.has(inWorkspace(workspaceId, leadId)))
      throw new MissingReference(`runs[${index}].leadId: no such lead in this workspace`);
  }
}
