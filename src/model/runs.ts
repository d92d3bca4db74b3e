import { type SQL, sql } from "drizzle-orm";
import { derivedId } from "../contract/ids.ts";
import type { Moment, PlatformRecord } from "../contract/platform.ts";
import type { Run, RunStatus, TriggerType } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import {
  type Database,
  inOrder,
  jsonParameters,
  prepared,
  retrying,
  type Statements,
  write,
} from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import type { Visibility } from "./automations.ts";
import { type PageRequest, pageOrder, pagesOf, pageValues, ROWS, toPage } from "./page.ts";
import { isRemoved } from "./removals.ts";

type RunRow = Omit<typeof runs.$inferSelect, "workspaceId" | "reference" | "crm" | "generation">;
/** A row as SQL gives it. */
type StoredRun = Omit<RunRow, "actions"> & { actions: string };

export const RUNS_LIST = "runs";

/** The list of one automation's runs, as its cursors name it. */
export function runsListOf(automationId: string): string {
  return `automations/${automationId}/runs`;
}

const COLUMNS = sql.raw(`id, automation_id AS automationId, status, trigger_type AS triggerType,
  occurred_at AS occurredAt, actions, lead_id AS leadId`);

const pages = pagesOf<StoredRun>(
  "occurred_at",
  (kind) => sql`
  SELECT ${COLUMNS} FROM runs
  WHERE workspace_id = ${sql.placeholder("workspaceId")} AND ${kind === "social" ? sql`crm = 0` : sql`crm = 1`}
    AND NOT ${isRemoved("runs")}`,
);

/** One page of the workspace's runs, newest first. */
export async function listRuns(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  request: PageRequest,
) {
  const readPage = visibility.crmSource ? pages.all : pages.social;
  const rows = await retrying(() => readPage(db, { workspaceId, ...pageValues(request) }));
  return toPage(RUNS_LIST, rows, request.limit, position, toItem);
}

/** Of the automation whose runs are listed; where nothing is hidden, without looking at it. */
const IS_SHOWN = sql`(${sql.placeholder("crmSource")} AND NOT EXISTS (
    SELECT 1 FROM removals WHERE automation_id = ${sql.placeholder("automationId")})
  OR EXISTS (SELECT 1 FROM automations AS a WHERE a.id = ${sql.placeholder("automationId")}
    AND a.removed_at IS NULL AND (${sql.placeholder("crmSource")} OR a.type <> 'crm_source')))`;

// Behind the runs, a row without an id: the automation itself, which is looked for only where the
// page is not full, or where it may be one that is not shown.
const readPageOfAutomation = prepared<StoredRun | { id: null }>(sql`
  SELECT * FROM (
    SELECT ${COLUMNS} FROM runs
    WHERE automation_id = ${sql.placeholder("automationId")}
      AND workspace_id = ${sql.placeholder("workspaceId")} AND NOT ${isRemoved("runs")}
      ${pageOrder("occurred_at", sql`iif(${IS_SHOWN}, ${ROWS}, 0)`)})
  UNION ALL
  SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM automations
  WHERE id = ${sql.placeholder("automationId")} AND workspace_id = ${sql.placeholder("workspaceId")}
    AND removed_at IS NULL AND (${sql.placeholder("crmSource")} OR type <> 'crm_source')
  LIMIT ${sql.placeholder("rows")}`);

/** One page of one automation's runs, newest first; `null` when the workspace has no such automation. */
export async function listRunsOfAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  automationId: string,
  request: PageRequest,
) {
  const crmSource = visibility.crmSource ? 1 : 0;
  const values = { workspaceId, automationId, crmSource, ...pageValues(request) };
  const found = await retrying(() => readPageOfAutomation(db, values));
  if (found.length === 0) return null;
  const rows = found.filter((row): row is StoredRun => row.id !== null);
  return toPage(runsListOf(automationId), rows, request.limit, position, toItem);
}

function toItem(row: StoredRun): Run {
  return toRun({ ...row, actions: JSON.parse(row.actions) });
}

function position(row: StoredRun) {
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

/** A reported run whose automation was looked up. */
export interface FoundRun extends ReportedRun {
  /** That of its automation when it was looked up; `null` when it was not there then. */
  generation: number | null;
}

/** Reads what the platform reports of a run; without `occurredAt`, it dates from when it was sent. */
export async function readRun(
  workspaceId: string,
  report: PlatformRecord<"recordRuns", "runs">,
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

/**
 * Inserts runs; one that is known already stays as it is, unless it went with its automation. A run
 * whose automation is gone fails `runs.generation`.
 */
export function recordRuns(workspaceId: string, found: FoundRun[]): Statements<number[]> {
  const reports = found.map((run) => ({ ...run, actions: JSON.stringify(run.actions) }));
  return inOrder(
    jsonParameters(reports).map((chunk) =>
      write(sql`
      INSERT INTO ${runs} (id, workspace_id, reference, automation_id, status, trigger_type, occurred_at, actions, lead_id, crm, generation)
      SELECT r.value->>'id', ${workspaceId}, r.value->>'reference', r.value->>'automationId', r.value->>'status',
        r.value->>'triggerType', r.value->>'occurredAt', r.value->>'actions', r.value->>'leadId',
        coalesce(a.type = 'crm_source', 0), a.generation
      FROM json_each(${chunk}) AS r
        LEFT JOIN ${automations} AS a ON a.id = r.value->>'automationId' AND a.removed_at IS NULL
      WHERE r.value->>'id' NOT IN (${recordedOf(found)})
      ON CONFLICT (id) DO UPDATE SET
        automation_id = excluded.automation_id, status = excluded.status, trigger_type = excluded.trigger_type,
        occurred_at = excluded.occurred_at, actions = excluded.actions, lead_id = excluded.lead_id,
        crm = excluded.crm, generation = excluded.generation`),
    ),
  );
}

/** Condition on a draft: its run is not there yet, before it is recorded. */
export function isNewRun(found: FoundRun[]): SQL {
  return sql`draft.value->>'subject' NOT IN (${recordedOf(found)})`;
}

/**
 * Those of the runs that are recorded already. One that was removed is recorded anew, unless it is of
 * the very generation that was found: then it came before the removal, perhaps by an earlier try of the
 * same transaction, whose reply was lost.
 */
function recordedOf(found: FoundRun[]): SQL {
  const named = found.map(({ id, automationId, generation }) => ({ id, automationId, generation }));
  return sql`SELECT known.id
    FROM json_each(${JSON.stringify(named)}) AS r JOIN ${runs} AS known ON known.id = r.value->>'id'
    WHERE NOT ${isRemoved("known")}
      OR (known.automation_id, known.generation) IS (r.value->>'automationId', r.value->>'generation')`;
}

/** The public shape. */
export function toRun(row: RunRow): Run {
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
