import { z } from "@hono/zod-openapi";
import { and, eq, isNull, sql } from "drizzle-orm";
import { RunStatus, TriggerType } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import { aliasFields, fromJson, insertFrom, mapColumns, omitColumns, qb } from "../db/builder.ts";
import { type Database, insertEach, type Statements } from "../db/client.ts";
import { isOnPage, mapItems, type PageRequest, preparePage } from "../db/page.ts";
import { automations, runs } from "../db/schema.ts";
import { findAutomation } from "./automations.ts";

type RunRow = Omit<typeof runs.$inferSelect, "workspaceId" | "reference">;

const RUN_COLUMNS = omitColumns(runs, "workspaceId", "reference");

const RUN_ORDER = { at: runs.occurredAt, id: runs.id };

const readPage = preparePage({
  order: RUN_ORDER,
  select: qb
    .select(RUN_COLUMNS)
    .from(runs)
    .where(and(eq(runs.workspaceId, sql.placeholder("workspaceId")), isOnPage(RUN_ORDER))),
});

/** Reads one page of the workspace's runs, newest first. */
export async function listRuns(db: Database, workspaceId: string, request: PageRequest) {
  return mapItems(await readPage(db, { workspaceId }, request), toRun);
}

const readPageOfAutomation = preparePage({
  order: RUN_ORDER,
  select: qb
    .select(aliasFields(RUN_COLUMNS))
    .from(automations)
    // CROSS JOIN checks the automation first, so that no run of another workspace is read.
    .crossJoin(runs)
    .where(
      and(
        eq(automations.id, sql.placeholder("automationId")),
        eq(automations.workspaceId, sql.placeholder("workspaceId")),
        isNull(automations.removedAt),
        eq(runs.automationId, automations.id),
        isOnPage(RUN_ORDER),
      ),
    ),
});

/** Reads one page of an automation's runs, newest first; null if the workspace has no such automation. */
export async function listRunsOfAutomation(
  db: Database,
  workspaceId: string,
  automationId: string,
  request: PageRequest,
) {
  const page = await readPageOfAutomation(db, { workspaceId, automationId }, request);
  // A non-empty page proves that the automation exists.
  const isFound =
    page.items.length > 0 || (await findAutomation(db, workspaceId, automationId)) !== undefined;
  return isFound ? mapItems(page, toRun) : null;
}

export type ReportedRun = RunRow & Pick<typeof runs.$inferSelect, "reference">;

const NEW_RUN_COLUMNS = Object.keys(omitColumns(runs, "workspaceId")) as (keyof ReportedRun)[];

/** SQL expression: the automation of a reported run; null if it was removed, and the column accepts no null. */
const AUTOMATION_ID = sql`(SELECT ${automations.id} FROM ${automations}
  WHERE ${automations.id} = r.value->>'automationId' AND ${automations.removedAt} IS NULL)`;

/**
 * Inserts runs. Stored runs stay unchanged. If the automation of one was removed, the transaction fails
 * (`isReferenceMissing`), so that no run is left behind by a removal at the same time.
 */
export function insertRuns(workspaceId: string, reported: ReportedRun[]): Statements<number> {
  const rows = reported.map((run) => ({ ...run, actions: JSON.stringify(run.actions) }));
  return insertEach(rows, (chunk) =>
    insertFrom(
      runs,
      {
        ...mapColumns(runs, NEW_RUN_COLUMNS, fromJson("r")),
        workspaceId,
        automationId: AUTOMATION_ID,
      },
      sql`FROM json_each(${chunk}) AS r WHERE true ON CONFLICT (id) DO NOTHING`,
    ),
  );
}

const RunAction = z
  .object({
    type: z.string().optional().openapi({
      description: "What the automation did. A free string.",
      example: "send_message",
    }),
    status: z.string().optional().openapi({
      description: "The result. A free string.",
      example: "success",
    }),
  })
  .openapi("RunAction", { description: "One thing the automation did during a run." });

/** The public shape of a run. */
export const Run = z
  .object({
    id: idField("run", "Identifies the run."),
    automation_id: idField("automation", "The automation that ran."),
    status: RunStatus,
    trigger_type: TriggerType,
    occurred_at: timeField("When the automation ran."),
    actions: z.array(RunAction).openapi({ description: "What the automation did, in order." }),
    lead_id: idField(
      "lead",
      "The lead that the run was about; null if there was none, or it was erased. A `run.completed` that was recorded before keeps the id of the lead.",
    ).nullable(),
  })
  .openapi("Run", {
    description: "One reaction of an automation to its trigger. Only finished runs appear.",
  });

export type Run = z.infer<typeof Run>;

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
