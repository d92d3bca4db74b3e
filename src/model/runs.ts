import { and, desc, eq, sql } from "drizzle-orm";
import { derivedId } from "../contract/ids.ts";
import type { PlatformRecord } from "../contract/platform.ts";
import type { Run, RunStatus, TriggerType } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { type Database, jsonParameters, retrying, type Statement } from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import { selectAutomation, type Visibility } from "./automations.ts";
import { olderThan, type PageRequest, toPage } from "./page.ts";

type RunRow = typeof runs.$inferSelect;

export const RUNS_LIST = "runs";

/** The list of one automation's runs, as its cursors name it. */
export function runsListOf(automationId: string): string {
  return `automations/${automationId}/runs`;
}

/** One page of the workspace's runs, newest first. */
export async function listRuns(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  { limit, after }: PageRequest,
) {
  const rows = await retrying(() =>
    db
      .select()
      .from(runs)
      .where(
        and(
          eq(runs.workspaceId, workspaceId),
          ofVisibleAutomation(visibility),
          olderThan(runs.occurredAt, runs.id, after),
        ),
      )
      .orderBy(desc(runs.occurredAt), desc(runs.id))
      .limit(limit + 1),
  );
  return toPage(RUNS_LIST, rows, limit, position, toRun);
}

/** One page of one automation's runs, newest first; `null` when the workspace has no such automation. */
export async function listRunsOfAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  automationId: string,
  { limit, after }: PageRequest,
) {
  const page = db
    .select()
    .from(runs)
    .where(
      and(
        eq(runs.automationId, automationId),
        eq(runs.workspaceId, workspaceId),
        ofVisibleAutomation(visibility),
        olderThan(runs.occurredAt, runs.id, after),
      ),
    )
    .orderBy(desc(runs.occurredAt), desc(runs.id))
    .limit(limit + 1)
    .as("page");
  // Behind the runs, a row without an id: the automation itself, which is looked for only where the
  // page is not full.
  const found = await retrying(() =>
    db
      .select()
      .from(page)
      .unionAll(selectAutomation(db, workspaceId, visibility, automationId, NO_RUN))
      .limit(limit + 1),
  );
  if (found.length === 0) return null;
  const rows = found.filter(({ id }) => id !== "");
  return toPage(runsListOf(automationId), rows, limit, position, toRun);
}

/** The columns of a run, with nothing in them. */
const NO_RUN = {
  id: sql<string>`''`,
  workspaceId: sql<string>`''`,
  reference: sql<string>`''`,
  automationId: sql<string>`''`,
  status: sql<RunStatus>`''`,
  triggerType: sql<TriggerType>`''`,
  occurredAt: sql<number>`0`,
  actions: sql<RunRow["actions"]>`'[]'`,
  leadId: sql<string | null>`NULL`,
};

function ofVisibleAutomation({ crmSource }: Visibility) {
  return crmSource
    ? undefined
    : sql`NOT EXISTS (SELECT 1 FROM ${automations} WHERE ${automations.id} = ${runs.automationId} AND ${automations.type} = 'crm_source')`;
}

function position(row: RunRow) {
  return { at: row.occurredAt, id: row.id };
}

/** A run as the platform reports it. */
export interface ReportedRun {
  id: string;
  reference: string;
  automationId: string;
  status: RunStatus;
  triggerType: TriggerType;
  occurredAt: number;
  actions: { type?: string; status?: string }[];
  leadId: string | null;
}

/** Reads what the platform reports of a run; without `occurredAt`, it dates from `now`. */
export async function readRun(
  workspaceId: string,
  report: PlatformRecord<"recordRuns", "runs">,
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

/** Inserts runs; one that is known already stays as it is. */
export function recordRuns(workspaceId: string, reported: ReportedRun[]): Statement[] {
  const rows = reported.map((run) => ({ ...run, actions: JSON.stringify(run.actions) }));
  return jsonParameters(rows).map(
    (rows) =>
      sql`
      INSERT INTO ${runs} (id, workspace_id, reference, automation_id, status, trigger_type, occurred_at, actions, lead_id)
      SELECT r.value->>'id', ${workspaceId}, r.value->>'reference', r.value->>'automationId', r.value->>'status',
        r.value->>'triggerType', r.value->>'occurredAt', r.value->>'actions', r.value->>'leadId'
      FROM json_each(${rows}) AS r
      WHERE true
      ON CONFLICT (id) DO NOTHING`,
  );
}

/** The public shape. */
export function toRun(row: Omit<RunRow, "workspaceId" | "reference">): Run {
  return {
    id: row.id,
    automation_id: row.automationId,
    status: row.status,
    trigger_type: row.triggerType,
    occurred_at: isoTime(row.occurredAt),
    actions: row.actions,
    lead_id: row.leadId,
  };
}
