import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { RunStatus, TriggerType } from "../contract/enumerations.ts";
import { AutomationId, LeadId, WorkspaceId } from "../contract/fields.ts";
import { derivedId } from "../contract/ids.ts";
import { TemporaryError } from "../db/errors.ts";
import { runs as runsTable } from "../db/schema.ts";
import { announce, draftEvent } from "../events/outbox.ts";
import { text } from "../primitives/text.ts";
import { insertRuns, type ReportedRun, toRun } from "../records/runs.ts";
import {
  AHEAD,
  type CallContext,
  planInsertion,
  type RecordingPlan,
  ReferenceOnce,
  ReportedTime,
  reports,
  uniqueById,
} from "./record.ts";
import { findReferenced, type RecordReference } from "./references.ts";

const RunReport = z.strictObject({
  reference: ReferenceOnce,
  automationId: AutomationId.describe("aut_…, of this workspace"),
  status: RunStatus,
  triggerType: TriggerType,
  occurredAt: ReportedTime.nullish().describe(`default: now. ${AHEAD}`),
  actions: z
    .array(z.strictObject({ type: text(200).optional(), status: text(200).optional() }))
    .max(100)
    .nullish(),
  leadId: LeadId.nullish().describe("lea_…, of this workspace"),
});
type RunReport = z.output<typeof RunReport>;

/** The input of `recordRuns`. */
export const RunRecording = z.strictObject({ workspaceId: WorkspaceId, runs: reports(RunReport) });

/** Plans a call that inserts runs and announces them. Stored runs stay unchanged. */
export async function planRuns(
  { workspaceId, runs }: z.output<typeof RunRecording>,
  { db, now }: CallContext,
): Promise<RecordingPlan> {
  const reported = await Promise.all(runs.map((run) => toReportedRun(workspaceId, run, now)));
  const references = reported.flatMap(referencesOf);
  const erasedLeads = await findReferenced(db, workspaceId, references);
  const found = uniqueById(reported).map((run) => ({
    ...run,
    leadId: run.leadId !== null && erasedLeads.has(run.leadId) ? null : run.leadId,
  }));
  const drafts = found.map((run) => draftEvent("run.completed", toRun(run), now));
  const isNew = (id: SQL) =>
    sql`NOT EXISTS (SELECT 1 FROM ${runsTable} WHERE ${runsTable.id} = ${id})`;
  const announced = announce(workspaceId, "run.completed", drafts, isNew, now);
  return {
    ...planInsertion(reported, announced, insertRuns(workspaceId, found)),
    missing: new TemporaryError(
      "an automation or a lead of the runs was deleted meanwhile: try again",
    ),
  };
}

/** Lists the records that a run refers to. */
function referencesOf({ automationId, leadId }: ReportedRun, index: number): RecordReference[] {
  const path = `runs[${index}]`;
  const automation = {
    kind: "automation",
    id: automationId,
    path: `${path}.automationId`,
  } as const;
  if (leadId === null) return [automation];
  return [automation, { kind: "lead", id: leadId, path: `${path}.leadId` }];
}

/** Makes the row of a reported run; `occurredAt` defaults to now. */
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
