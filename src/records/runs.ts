import { z } from "@hono/zod-openapi";
import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { RunStatus, TriggerType } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import { columnsBut, each, excluded, fromJson, insertFrom, named, qb } from "../db/builder.ts";
import { type Database, insertEach, type Statements } from "../db/client.ts";
import { isAskedFor, isBehind, mapItems, type PageRequest, preparePages } from "../db/page.ts";
import { automations, runs } from "../db/schema.ts";
import { findAutomation, type Visibility } from "./automations.ts";
import { isRemoved } from "./removals.ts";

/** The stored run, before the report is written. */
const known = alias(runs, "known");

type RunRow = Omit<typeof runs.$inferSelect, "workspaceId" | "reference" | "generation">;

const SHOWN = columnsBut(runs, "workspaceId", "reference", "generation");

const ORDER = { at: runs.occurredAt, id: runs.id };

const IS_OF_WORKSPACE = eq(runs.workspaceId, sql.placeholder("workspaceId"));
/** SQL condition: the run belongs to a `crm_source`. */
const IS_CRM = sql`(SELECT ${automations.type} = 'crm_source' FROM ${automations}
  WHERE ${automations.id} = ${runs.automationId})`;

/** The pages of the workspace's runs without those that are removed or meet a condition. */
function pagesWithout(isHidden: SQL) {
  const rows = qb
    .select({ ...SHOWN, isHidden: isHidden.mapWith(Boolean).as("is_hidden") })
    .from(runs)
    .where(and(IS_OF_WORKSPACE, isBehind(ORDER), isAskedFor(isHidden)));
  return preparePages(ORDER, rows);
}

const allPages = pagesWithout(isRemoved(runs));
const socialPages = pagesWithout(sql`(${isRemoved(runs)} OR ${IS_CRM})`);

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

const pagesOfAutomation = preparePages(
  ORDER,
  qb
    .select({
      ...named(SHOWN),
      isHidden: sql<boolean>`${isRemoved(runs)}`.mapWith(Boolean).as("is_hidden"),
    })
    .from(automations)
    // Ownership first: none of another workspace's runs is read.
    .crossJoin(runs)
    .where(
      and(
        eq(automations.id, sql.placeholder("automationId")),
        eq(automations.workspaceId, sql.placeholder("workspaceId")),
        isNull(automations.removedAt),
        eq(runs.automationId, automations.id),
        isBehind(ORDER),
        isAskedFor(isRemoved(runs)),
      ),
    ),
);

/** One page of an automation's runs, newest first; `null` if the workspace has no such automation. */
export async function listRunsOfAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  automationId: string,
  request: PageRequest,
) {
  if (!visibility.crmSource && !(await findAutomation(db, workspaceId, visibility, automationId)))
    return null;
  const listing = await pagesOfAutomation(db, { workspaceId, automationId }, request);
  // Whoever has runs exists.
  const isThere =
    listing.items.length > 0 ||
    listing.next !== null ||
    (await findAutomation(db, workspaceId, visibility, automationId)) !== undefined;
  return isThere ? mapItems(listing, toRun) : null;
}

export type ReportedRun = RunRow & Pick<typeof runs.$inferSelect, "reference">;

/** A reported run whose automation has been looked up. */
export interface FoundRun extends ReportedRun {
  /** The automation's generation: if it is removed before the run is written, so is the run. */
  generation: number;
}

/** The reported fields of a run. */
const REPORTED = (Object.keys(SHOWN) as (keyof RunRow)[]).filter((name) => name !== "id");

/** Inserts runs. Those already stored stay unchanged, unless they were removed with their automation. */
export function insertRuns(workspaceId: string, found: FoundRun[]): Statements<number> {
  const reports = found.map((run) => ({ ...run, actions: JSON.stringify(run.actions) }));
  return insertEach(reports, (chunk) =>
    insertFrom(
      runs,
      {
        ...each(runs, ["id", "reference", "generation", ...REPORTED], fromJson("r")),
        workspaceId,
      },
      sql`FROM json_each(${chunk}) AS r WHERE r.value->>'id' NOT IN (${recordedOf(found)})`,
    ).onConflictDoUpdate({ target: runs.id, set: RENEWED }),
  );
}

/** The columns set when a run that was removed with its automation is recorded again. */
const RENEWED = each(runs, [...REPORTED, "generation"], excluded);

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
