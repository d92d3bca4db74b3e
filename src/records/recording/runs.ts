import { derivedId } from "../../contract/ids.ts";
import { InputError } from "../../contract/input-error.ts";
import type { Moment } from "../../contract/time.ts";
import { inOrder, readAs } from "../../db/client.ts";
import { announce, draftEvent } from "../../webhooks/outbox.ts";
import { shows, type Visibility } from "../automations.ts";
import { insertRuns, isNewRun, type ReportedRun, toRun } from "../runs.ts";
import type { RecordingInput, RunReport } from "./inputs.ts";
import { firstOfEach, type Recording, sum } from "./recording.ts";
import { inWorkspace, type Reference } from "./references.ts";

/** A call that inserts runs and announces them; runs that are already stored stay unchanged. */
export async function toRunRecording(
  { workspaceId, runs }: RecordingInput<"recordRuns">,
  moment: Moment,
  visibility: Visibility,
): Promise<Recording> {
  const reported = await Promise.all(runs.map((run) => toReportedRun(workspaceId, run, moment)));
  const fresh = firstOfEach(reported);
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    references: reported.flatMap(referencesOf),
    missing: new InputError("runs", "an automation that they name has just been removed"),
    statements({ automations, erasedLeads }) {
      const automationOf = ({ automationId }: ReportedRun) =>
        automations.get(inWorkspace(workspaceId, automationId));
      const isErased = ({ leadId }: ReportedRun) =>
        leadId !== null && erasedLeads.has(inWorkspace(workspaceId, leadId));
      const found = fresh.map((run) => ({
        ...run,
        leadId: isErased(run) ? null : run.leadId,
        generation: automationOf(run)?.generation ?? null,
      }));
      const drafts = found
        .filter((run) => shows(visibility, automationOf(run)?.type))
        .map((run) => draftEvent("run.completed", toRun(run), moment.now));
      const statements = inOrder([
        announce(workspaceId, "run.completed", drafts, isNewRun(found), moment.now),
        insertRuns(workspaceId, found),
      ]);
      return readAs(statements, ([, created]) => sum(created));
    },
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

/** A run as reported; `occurredAt` defaults to when the report was sent. */
async function toReportedRun(
  workspaceId: string,
  report: RunReport,
  { sentAt, now }: Moment,
): Promise<ReportedRun> {
  return {
    id: await derivedId("run", workspaceId, report.reference),
    reference: report.reference,
    automationId: report.automationId,
    status: report.status,
    triggerType: report.triggerType,
    occurredAt: report.occurredAt ?? sentAt ?? now,
    actions: (report.actions ?? []) as ReportedRun["actions"],
    leadId: report.leadId ?? null,
  };
}
