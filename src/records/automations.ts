import { z } from "@hono/zod-openapi";
import { and, eq, isNull, sql } from "drizzle-orm";
import { AutomationStatus, AutomationType } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import { inJson, omitColumns, qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import { isOnPage, mapItems, type PageRequest, preparePage } from "../db/page.ts";
import { automations } from "../db/schema.ts";

/*
 * Automations: queries and their public shape. leads.ts and runs.ts have the same for leads and runs. person.ts lists
 * the personal fields of a lead. finding.ts searches leads by personal data, and removals.ts removes automations with
 * their runs.
 */

export type AutomationRow = typeof automations.$inferSelect;

const AUTOMATION_COLUMNS = omitColumns(
  automations,
  "workspaceId",
  "reference",
  "reportedAt",
  "removedAt",
);

const AUTOMATION_ORDER = { at: automations.createdAt, id: automations.id };

const readPage = preparePage({
  order: AUTOMATION_ORDER,
  select: qb
    .select(AUTOMATION_COLUMNS)
    .from(automations)
    .where(
      and(
        eq(automations.workspaceId, sql.placeholder("workspaceId")),
        isNull(automations.removedAt),
        isOnPage(AUTOMATION_ORDER),
      ),
    ),
});

/** Reads one page of the workspace's automations, newest first. */
export async function listAutomations(db: Database, workspaceId: string, request: PageRequest) {
  return mapItems(await readPage(db, { workspaceId }, request), toAutomation);
}

const selectAutomation = prepared(
  qb
    .select()
    .from(automations)
    .where(
      and(
        eq(automations.id, sql.placeholder("id")),
        eq(automations.workspaceId, sql.placeholder("workspaceId")),
        isNull(automations.removedAt),
      ),
    ),
);

/** Reads one automation of the workspace; undefined if there is none with this id. */
export async function findAutomation(
  db: Database,
  workspaceId: string,
  id: string,
): Promise<AutomationRow | undefined> {
  const [row] = await query(db, selectAutomation({ workspaceId, id }));
  return row;
}

/** Selects the automations with these ids, of any workspace, including removed ones. */
export function selectStoredAutomations(ids: string[]) {
  return qb.select().from(automations).where(inJson(automations.id, ids));
}

/** Selects the ids among these that are automations of the workspace. */
export function selectAutomations(workspaceId: string, ids: string[]) {
  const { id, removedAt } = automations;
  return qb
    .select({ id })
    .from(automations)
    .where(
      and(inJson(id, ids), sql`+${automations.workspaceId} = ${workspaceId}`, isNull(removedAt)),
    );
}

const AGENT =
  "An agent is the identity that an automation acts for, usually one per branch or brand. It owns automations and captures leads.";

/** The public shape of an automation. */
export const Automation = z
  .object({
    id: idField("automation", "Identifies the automation; never changes."),
    name: z.string().openapi({
      description:
        "The name shown in the app, in French. For a social automation, it combines the kind of reply (such as “Réponse aux commentaires”, replies to comments) and the agent's name.",
      example: "Réponse aux commentaires – Agence Lumière",
    }),
    type: AutomationType,
    provider: z.string().openapi({
      description:
        "The connector that the automation uses, such as `facebook`, `instagram`, `instagram_page` or the name of a CRM. A free string, so be prepared for new values.",
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
  row: Pick<AutomationRow, Exclude<keyof typeof AUTOMATION_COLUMNS, "createdAt">>,
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
