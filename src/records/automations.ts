import { z } from "@hono/zod-openapi";
import { and, eq, getTableColumns, isNull, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { AutomationStatus, AutomationType } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isServed } from "../contract/served.ts";
import { LAST_MS } from "../contract/text.ts";
import { isoTime } from "../contract/time.ts";
import {
  excluded,
  fromJson,
  inJson,
  insertFrom,
  mapColumns,
  omitColumns,
  qb,
} from "../db/builder.ts";
import {
  counted,
  type Database,
  insertEach,
  prepared,
  query,
  readAs,
  type Statements,
  transaction,
} from "../db/client.ts";
import { includesHidden, isOnPage, mapItems, type PageRequest, preparePages } from "../db/page.ts";
import { automations } from "../db/schema.ts";
import { deleteRemovedRuns } from "./removals.ts";

/** The stored automation, before the report is written. */
const known = alias(automations, "known");

export type AutomationRow = typeof automations.$inferSelect;

/** Which automations a deployment shows; those of type `crm_source` are optional. */
export interface Visibility {
  crmSource: boolean;
}

/** The visibility for the deployment's `SERVED_ROUTES`. */
export function visibilityOf(servedRoutes: string): Visibility {
  return { crmSource: isServed(servedRoutes, "automations.crm_source") };
}

const SHOWN = omitColumns(automations, "workspaceId", "reference", "removedAt");

const ORDER = { at: automations.createdAt, id: automations.id };

const IS_HIDDEN = sql`(${automations.removedAt} IS NOT NULL
  OR ${automations.type} = 'crm_source' AND NOT ${sql.placeholder("crmSource")})`;

const pages = preparePages(
  ORDER,
  qb
    .select({ ...SHOWN, isHidden: IS_HIDDEN.mapWith(Boolean).as("is_hidden") })
    .from(automations)
    .where(
      and(
        eq(automations.workspaceId, sql.placeholder("workspaceId")),
        isOnPage(ORDER),
        includesHidden(IS_HIDDEN),
      ),
    ),
);

/** One page of the workspace's automations, newest first. */
export async function listAutomations(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  request: PageRequest,
) {
  return mapItems(await pages(db, { workspaceId, ...visibility }, request), toAutomation);
}

const automation = prepared(
  qb
    .select(getTableColumns(automations))
    .from(automations)
    .where(
      and(
        eq(automations.id, sql.placeholder("id")),
        eq(automations.workspaceId, sql.placeholder("workspaceId")),
        isNull(automations.removedAt),
      ),
    ),
);

/** One automation of the workspace; undefined if there is none with this id. */
export async function findAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  id: string,
): Promise<AutomationRow | undefined> {
  const [row] = await query(db, automation({ workspaceId, id }));
  return row && shows(visibility, row.type) ? row : undefined;
}

/** Whether automations of this type are shown and announced. */
export function shows({ crmSource }: Visibility, type: AutomationType | undefined): boolean {
  return crmSource || type !== "crm_source";
}

/** Sets the status of an automation that has not changed since `row` was read. */
export function updateStatus(
  row: AutomationRow,
  { status, updatedAt }: AutomationRow,
): Statements<number> {
  return counted(qb.update(automations).set({ status, updatedAt }).where(isUnchanged(row)));
}

/** SQL condition: the automation has the status and times that it had when `row` was read. */
export function isUnchanged({ id, status, updatedAt, createdAt }: AutomationRow): SQL {
  return sql`(${automations.id} = ${id} AND ${automations.status} = ${status} AND ${automations.updatedAt} = ${updatedAt}
    AND ${automations.createdAt} = ${createdAt} AND ${automations.removedAt} IS NULL)`;
}

const REPORTED = omitColumns(automations, "workspaceId", "createdAt", "removedAt");

export interface ReportedAutomation extends Pick<AutomationRow, keyof typeof REPORTED> {
  /** The `updatedAt` that the platform sent: a newer automation is kept; `null`: the report always applies. */
  asOf: number | null;
}

/** The reported fields other than its id and time. */
const COMPARED = (Object.keys(REPORTED) as (keyof typeof REPORTED)[]).filter(
  (name) => name !== "id" && name !== "updatedAt",
);

/**
 * Inserts automations, or updates those already stored. A report older than the stored one changes
 * nothing; of two that differ but have the same time, the one that arrives later wins. Reads how
 * many were not there or had been removed.
 *
 * @param createdAt Unix milliseconds: the creation time of new ones.
 */
export function upsertAutomations(
  workspaceId: string,
  reported: ReportedAutomation[],
  createdAt: number,
): Statements<number> {
  const values = mapColumns(automations, COMPARED, fromJson("r"));
  const isSame = and(...COMPARED.map((name) => sql`${known[name]} IS ${values[name]}`));
  const isNew = sql`(${known.id} IS NULL OR ${known.removedAt} IS NOT NULL)`;
  const ids = reported.map(({ id }) => id);
  const statements = transaction({
    counts: qb.all<{ created: number }>(sql`SELECT count(*) AS created
      FROM json_each(${JSON.stringify(ids)}) AS r LEFT JOIN ${automations} AS known ON known.id = r.value
      WHERE ${isNew}`),
    earlierRuns: deleteRemovedRuns(ids),
    written: insertEach(reported, (chunk) =>
      insertFrom(
        automations,
        {
          ...mapColumns(automations, ["id"], fromJson("r")),
          ...values,
          updatedAt: sql`iif(r.value->>'asOf' IS NULL, ${laterThanKnown(sql`r.value->>'updatedAt'`)}, r.value->>'updatedAt')`,
          workspaceId,
          createdAt,
        },
        sql`FROM json_each(${chunk}) AS r LEFT JOIN ${automations} AS known ON ${known.id} = r.value->>'id'
            WHERE ${isNew} OR ${IS_IN_ORDER} AND (NOT ${isSame} OR r.value->>'asOf' > ${known.updatedAt})`,
      ).onConflictDoUpdate({ target: automations.id, set: MERGED }),
    ),
  });
  return readAs(statements, ({ counts: [row] }) => row?.created ?? 0);
}

/** The columns that a report sets in a stored automation; one that was removed starts over. */
const MERGED = {
  createdAt: sql`CASE WHEN ${automations.removedAt} IS NULL THEN ${automations.createdAt} ELSE ${excluded(automations.createdAt)} END`,
  removedAt: null,
  ...mapColumns(automations, ["updatedAt", ...COMPARED], excluded),
};

/** SQL expression: `time`, or 1 ms after the change of `known` if that is later. */
function laterThanKnown(time: SQL): SQL {
  return sql`min(max(${time}, coalesce(${known.updatedAt} + 1, ${time})), ${LAST_MS})`;
}

/**
 * SQL expression: the body of a draft with the `updated_at` that its report is stored with. Like the
 * draft's condition, evaluated before the reports are written.
 */
export const DATED_BODY = sql`coalesce((SELECT json_set(nullif(draft.value->>'body', ''), '$.data.updated_at',
    strftime('%Y-%m-%dT%H:%M:%fZ', ${laterThanKnown(sql`draft.value->>'undatedAt'`)} / 1000.0, 'unixepoch'))
  FROM ${automations} AS known WHERE ${known.id} = draft.value->>'subject' AND draft.value->>'undatedAt' IS NOT NULL),
  draft.value->>'body')`;

/** SQL condition: report `r` is not older than the automation `known`. */
const IS_IN_ORDER = sql`coalesce(r.value->>'asOf' >= ${known.updatedAt}, true)`;

/**
 * SQL condition on a draft: its report changes the automation's status. Evaluated before the
 * reports are written.
 */
export function changesStatus(reported: ReportedAutomation[]): SQL {
  const reports = reported.map(({ id, status, asOf }) => ({ id, status, asOf }));
  return sql`draft.value->>'subject' IN (SELECT ${known.id}
    FROM json_each(${JSON.stringify(reports)}) AS r JOIN ${automations} AS known ON ${known.id} = r.value->>'id'
    WHERE ${known.status} <> r.value->>'status' AND ${known.removedAt} IS NULL AND ${IS_IN_ORDER})`;
}

/** The workspace's automations among those with these ids. */
export function findAutomations(workspaceId: string, ids: string[]) {
  const { id, type, removedAt } = automations;
  return qb
    .select({ id, type })
    .from(automations)
    .where(
      and(inJson(id, ids), sql`+${automations.workspaceId} = ${workspaceId}`, isNull(removedAt)),
    );
}

const AGENT =
  "An agent is the identity that your workspace answers as, usually one per branch or brand. It owns automations and captures leads.";

/** The public shape of an automation. */
export const Automation = z
  .object({
    id: idField("automation", "Identifies the automation; never changes."),
    name: z.string().openapi({
      description:
        "The name shown in the app, in French. For a social automation, it combines the kind of reply (“Réponse aux commentaires”: replies to comments) and the agent's name.",
      example: "Réponse aux commentaires – Agence Lumière",
    }),
    type: AutomationType,
    provider: z.string().openapi({
      description:
        "The connector that the automation uses, such as `facebook`, `instagram`, `instagram_page` or the name of a CRM. A free string: be prepared for new values.",
      example: "instagram",
    }),
    agent_id: idField("agent", "The agent that the automation belongs to."),
    agent_name: z.string().openapi({
      description: "The agent's name, as the app shows it.",
      example: "Agence Lumière",
    }),
    status: AutomationStatus,
    updated_at: timeField(
      "When the automation last changed. If you have two copies, the later one is current.",
    ),
  })
  .openapi("Automation", {
    description: `A rule that reacts to a trigger, such as a comment or a form, on behalf of an agent. ${AGENT}`,
  });

export type Automation = z.infer<typeof Automation>;

export function toAutomation(
  row: Pick<AutomationRow, Exclude<keyof typeof SHOWN, "createdAt">>,
): Automation {
  return {
    id: row.id,
    name: row.name,
    type: row.type,
    provider: row.provider,
    agent_id: row.agentId,
    agent_name: row.agentName,
    status: row.status,
    updated_at: isoTime(row.updatedAt),
  };
}
