import { z } from "@hono/zod-openapi";
import { and, eq, not, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { RunStatus, TriggerType } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import {
  columnsBut,
  each,
  excluded,
  fromJson,
  insertFrom,
  list,
  named,
  qb,
} from "../db/builder.ts";
import {
  counted,
  type Database,
  inOrder,
  jsonParameters,
  prepared,
  query,
  type Statements,
  type Stored,
} from "../db/client.ts";
import {
  isBehind,
  mapItems,
  newestFirst,
  type PageRequest,
  pageValues,
  preparePages,
  ROWS,
  toListing,
} from "../db/page.ts";
import { automations, removals, runs } from "../db/schema.ts";
import type { Visibility } from "./automations.ts";
import { isRemoved } from "./removals.ts";

/** The stored run, before the report is written. */
const known = alias(runs, "known");

type RunRow = Omit<typeof runs.$inferSelect, "workspaceId" | "reference" | "crm" | "generation">;

const SHOWN = columnsBut(runs, "workspaceId", "reference", "crm", "generation");

// Literals, to match the partial indexes' conditions: with a parameter, SQLite would not use them.
const IS_SOCIAL = sql`${runs.crm} = 0`;
const IS_CRM = sql`${runs.crm} = 1`;

const ORDER = { at: runs.occurredAt, id: runs.id };

/** The shown runs of one kind; each kind has its own index. */
function shown(isOfKind: SQL) {
  return qb
    .select(SHOWN)
    .from(runs)
    .where(
      and(
        eq(runs.workspaceId, sql.placeholder("workspaceId")),
        isOfKind,
        not(isRemoved(runs)),
        isBehind(ORDER),
      ),
    );
}

const socialPages = preparePages(ORDER, shown(IS_SOCIAL));
// Merges both indexes in order.
const allPages = preparePages(ORDER, shown(IS_SOCIAL).unionAll(shown(IS_CRM)));

/** One page of the workspace's runs, newest first. */
export async function listRuns(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  request: PageRequest,
) {
  const pages = visibility.crmSource ? allPages : socialPages;
  return mapItems(await pages(db, { workspaceId }, request), toRun);
}

const AUTOMATION_ID = sql.placeholder("automationId");
const CRM_SOURCE = sql.placeholder("crmSource");
const IS_SHOWN = sql`${automations.removedAt} IS NULL
  AND (${CRM_SOURCE} OR ${automations.type} <> 'crm_source')`;

/** SQL condition: the automation's runs are shown. It is looked up only if some may be hidden. */
const IS_OF_SHOWN = sql`(${CRM_SOURCE} AND NOT EXISTS (
    SELECT 1 FROM ${removals} WHERE ${removals.automationId} = ${AUTOMATION_ID})
  OR EXISTS (SELECT 1 FROM ${automations} WHERE ${automations.id} = ${AUTOMATION_ID} AND ${IS_SHOWN}))`;

const runsOfAutomation = qb
  .select(named(SHOWN))
  .from(runs)
  .where(
    and(
      eq(runs.automationId, AUTOMATION_ID),
      eq(runs.workspaceId, sql.placeholder("workspaceId")),
      not(isRemoved(runs)),
      isBehind(ORDER),
    ),
  )
  .orderBy(...newestFirst(ORDER));

// After the runs, it returns a row without an id: the automation itself, read only if the page is not full or
// the automation may be hidden. Raw SQL: each part of the union has its own limit, one of them computed.
const pageOfAutomation = prepared(
  qb.all<Stored<RunRow> | { id: null }>(sql`
  SELECT * FROM (${runsOfAutomation.getSQL()} LIMIT iif(${IS_OF_SHOWN}, ${ROWS}, 0))
  UNION ALL
  SELECT ${list(Object.keys(SHOWN).map(() => sql`NULL`))} FROM ${automations}
  WHERE ${automations.id} = ${AUTOMATION_ID}
    AND ${automations.workspaceId} = ${sql.placeholder("workspaceId")} AND ${IS_SHOWN}
  LIMIT ${ROWS}`),
);

/** One page of an automation's runs, newest first; `null` if the workspace has no such automation. */
export async function listRunsOfAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  automationId: string,
  request: PageRequest,
) {
  const crmSource = visibility.crmSource ? 1 : 0;
  const values = { workspaceId, automationId, crmSource, ...pageValues(request) };
  const found = await query(db, pageOfAutomation(values));
  if (found.length === 0) return null;
  const rows = found.flatMap((row) =>
    row.id === null ? [] : { ...row, actions: JSON.parse(row.actions) },
  );
  return mapItems(toListing<RunRow>(rows, request.limit, ORDER), toRun);
}

export type ReportedRun = RunRow & Pick<typeof runs.$inferSelect, "reference">;

/** A reported run whose automation has been looked up. */
export interface FoundRun extends ReportedRun {
  /** The automation's generation when it was looked up; `null` if it was not there. */
  generation: number | null;
}

/** The reported fields of a run. */
const REPORTED = (Object.keys(SHOWN) as (keyof RunRow)[]).filter((name) => name !== "id");

/**
 * Inserts runs. Those already stored stay unchanged, unless they were removed with their
 * automation. A run whose automation is gone violates NOT NULL on `runs.generation`.
 */
export function insertRuns(workspaceId: string, found: FoundRun[]): Statements<number[]> {
  const reports = found.map((run) => ({ ...run, actions: JSON.stringify(run.actions) }));
  return inOrder(
    jsonParameters(reports).map((chunk) =>
      counted(
        insertFrom(
          runs,
          {
            ...each(runs, ["id", "reference", ...REPORTED], fromJson("r")),
            workspaceId,
            crm: sql`coalesce(${automations.type} = 'crm_source', 0)`,
            generation: automations.generation,
          },
          sql`FROM json_each(${chunk}) AS r
              LEFT JOIN ${automations} ON ${automations.id} = r.value->>'automationId' AND ${automations.removedAt} IS NULL
            WHERE r.value->>'id' NOT IN (${recordedOf(found)})`,
        ).onConflictDoUpdate({ target: runs.id, set: RENEWED }),
      ),
    ),
  );
}

/** The columns set when a run that was removed with its automation is recorded again. */
const RENEWED = each(runs, [...REPORTED, "crm", "generation"], excluded);

/** SQL condition on a draft: its run does not exist yet. Evaluated before the run is written. */
export function isNewRun(found: FoundRun[]): SQL {
  return sql`draft.value->>'subject' NOT IN (${recordedOf(found)})`;
}

/**
 * The runs that are already recorded. A removed run may be recorded again, unless it belongs to the
 * generation that was looked up: then it was recorded before the removal, perhaps by an earlier try
 * of this transaction whose reply was lost.
 */
function recordedOf(found: FoundRun[]): SQL {
  const named = found.map(({ id, automationId, generation }) => ({ id, automationId, generation }));
  return sql`SELECT ${known.id}
    FROM json_each(${JSON.stringify(named)}) AS r JOIN ${runs} AS known ON ${known.id} = r.value->>'id'
    WHERE NOT ${isRemoved(known)}
      OR (${known.automationId}, ${known.generation}) IS (r.value->>'automationId', r.value->>'generation')`;
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
    lead_id: idField("lead", "The lead that the run was about; null if there was none.").nullable(),
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
