import { and, eq, sql } from "drizzle-orm";
import type { Lead } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { each, fromJson, insertFrom, list, select } from "../db/builder.ts";
import {
  type Database,
  inOrder,
  jsonParameters,
  prepared,
  rows,
  type Statements,
} from "../db/client.ts";
import { leads } from "../db/schema.ts";
import { byCreation, isBehind, listPage, newestFirst, type PageRequest, ROWS } from "./page.ts";

type LeadRow = Omit<typeof leads.$inferSelect, "workspaceId" | "reference" | "eventId">;

const SHOWN = {
  id: leads.id,
  source: leads.source,
  agentId: leads.agentId,
  name: leads.name,
  email: leads.email,
  phone: leads.phone,
  customFields: leads.customFields,
  createdAt: leads.createdAt,
};

const page = prepared(
  select(SHOWN)
    .from(leads)
    .where(
      and(
        eq(leads.workspaceId, sql.placeholder("workspaceId")),
        isBehind(leads.createdAt, leads.id),
      ),
    )
    .orderBy(...newestFirst(leads.createdAt, leads.id))
    .limit(ROWS),
);

/** One page of the workspace's leads, newest first. */
export async function listLeads(db: Database, workspaceId: string, request: PageRequest) {
  return listPage(db, page, { workspaceId }, request, byCreation, toLead);
}

/** A lead as the platform reports it; `eventId` is the event that announces it. */
export type ReportedLead = Omit<typeof leads.$inferInsert, "workspaceId"> & LeadRow;

const REPORTED: Exclude<keyof typeof leads.$inferSelect, "workspaceId">[] = [
  "id",
  "reference",
  "source",
  "agentId",
  "name",
  "email",
  "phone",
  "customFields",
  "createdAt",
  "eventId",
];

/** Inserts leads; those already stored stay unchanged. */
export function insertLeads(workspaceId: string, reported: ReportedLead[]): Statements<number[]> {
  const reports = reported.map((lead) => ({
    ...lead,
    customFields: JSON.stringify(lead.customFields),
  }));
  return inOrder(
    jsonParameters(reports).map((chunk) =>
      insertFrom(
        leads,
        {
          ...each(leads, REPORTED, fromJson("r")),
          workspaceId,
        },
        sql`FROM json_each(${chunk}) AS r WHERE true ON CONFLICT (id) DO NOTHING`,
      ),
    ),
  );
}

/** The leads among those named that exist in the named workspace. */
export function findLeads(named: { workspaceId: string; id: string }[]) {
  return rows(
    select({ workspaceId: leads.workspaceId, id: leads.id })
      .from(sql`json_each(${JSON.stringify(named)}) AS named`)
      .innerJoin(
        leads,
        sql`${leads.id} = named.value->>'id' AND ${leads.workspaceId} = named.value->>'workspaceId'`,
      ),
  );
}

/** SQL expression: a lead's row as JSON, for `parseLeadRow`. */
export const LEAD_AS_JSON = sql<string>`json_object(${list(
  Object.entries(SHOWN).flatMap(([name, column]) => [sql.raw(`'${name}'`), column]),
)})`;

/** Parses the JSON that `LEAD_AS_JSON` returns. */
export function parseLeadRow(json: string): LeadRow {
  const row = JSON.parse(json);
  return { ...row, customFields: JSON.parse(row.customFields) };
}

/** The public shape. */
export function toLead(row: LeadRow): Lead {
  return {
    id: row.id,
    source: row.source,
    agent_id: row.agentId,
    name: row.name,
    email: row.email,
    phone: row.phone,
    custom_fields: row.customFields,
    created_at: isoTime(row.createdAt),
  };
}
