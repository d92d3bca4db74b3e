import { derivedId } from "../../contract/ids.ts";
import { InputError } from "../../contract/input-error.ts";
import { readAs, transaction } from "../../db/client.ts";
import { announce, draftEvent } from "../../events/outbox.ts";
import { shows, visibilityOf } from "../automations.ts";
import { IS_NEW_RUN, insertRuns, type ReportedRun, toRun } from "../runs.ts";
import type { RecordingInput, RunReport } from "./inputs.ts";
import { type Context, type Recording, uniqueById } from "./recording.ts";
import { findReferenced, type Reference } from "./references.ts";

/** A call that inserts runs and announces them; runs that are already stored stay unchanged. */
export async function toRunRecording(
  { workspaceId, runs }: RecordingInput<"recordRuns">,
  { env, db, now }: Context,
): Promise<Recording> {
  const visibility = visibilityOf(env.SERVED_ROUTES);
  const reported = await Promise.all(runs.map((run) => toReportedRun(workspaceId, run, now)));
  const references = reported.flatMap(referencesOf);
  const { automations, erasedLeads } = await findReferenced(db, workspaceId, references);
  const found = uniqueById(reported).map((run) => ({
    ...run,
    leadId: run.leadId !== null && erasedLeads.has(run.leadId) ? null : run.leadId,
  }));
  const drafts = found
    .filter((run) => shows(visibility, automations.get(run.automationId)))
    .map((run) => draftEvent("run.completed", toRun(run), now));
  const statements = transaction({
    events: announce(workspaceId, "run.completed", drafts, IS_NEW_RUN, now),
    created: insertRuns(workspaceId, found),
  });
  return {
    ids: reported.map(({ id }) => id),
    statements: readAs(statements, ({ created }) => created),
    missing: new InputError("runs", "an automation that they name has just been removed"),
  };
}

/** The records a run refers to. */
function referencesOf({ automationId, leadId }: ReportedRun, index: number): Reference[] {
  const path = `runs[${index}]`;
  const automation = {
    kind: "automation",
    id: automationId,
    path: `${path}.automationId`,
  } as const;
  if (leadId === null) return [automation];
  return [automation, { kind: "lead", id: leadId, path: `${path}.leadId` }];
}

/** A run as reported; `occurredAt` defaults to now. */
async function toReportedRun(
  workspaceId: string,
  report: RunReport,
  now: number,
): Promise<ReportedRun> {
  return {
    id: await derivedId("run", workspaceId, report.reference),
    reference: report.reference,
    automationId: report.automationId,
    status: report.status,
    triggerType: report.triggerType,
    occurredAt: report.occurredAt ?? now,
    actions: (report.actions ?? []) as ReportedRun["actions"],
    leadId: report.leadId ?? null,
  };
}
