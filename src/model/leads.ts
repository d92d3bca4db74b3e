import { and, eq, sql } from "drizzle-orm";
import { derivedId } from "../contract/ids.ts";
import type { Moment, PlatformRecord } from "../contract/platform.ts";
import type { Lead } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { insertFrom, select } from "../db/builder.ts";
import {
  type Database,
  inOrder,
  jsonParameters,
  prepared,
  query,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { leads } from "../db/schema.ts";
import { isBehind, newestFirst, type PageRequest, pageValues, ROWS, toListing } from "./page.ts";

type LeadRow = Omit<typeof leads.$inferSelect, "workspaceId" | "reference" | "eventId">;

const page = prepared(
  select({
    id: leads.id,
    source: leads.source,
    agentId: leads.agentId,
    name: leads.name,
    email: leads.email,
    phone: leads.phone,
    customFields: leads.customFields,
    createdAt: leads.createdAt,
  })
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
  const found = await query(db, page({ workspaceId, ...pageValues(request) }));
  return toListing(found, request.limit, ({ createdAt, id }) => ({ at: createdAt, id }), toLead);
}

/** A lead as the platform reports it; `eventId` is the event that announces it. */
export type ReportedLead = Omit<typeof leads.$inferInsert, "workspaceId"> & LeadRow;

/** What the platform reports of a lead; without `createdAt`, it dates from when it was sent. */
export async function parseLead(
  workspaceId: string,
  { agent, ...report }: PlatformRecord<"recordLeads", "leads">,
  { sentAt, now }: Moment,
): Promise<ReportedLead> {
  return {
    id: await derivedId("lead", workspaceId, report.reference),
    reference: report.reference,
    source: report.source,
    agentId: await derivedId("agent", workspaceId, agent.reference),
    name: report.name ?? null,
    email: report.email ?? null,
    phone: report.phone ?? null,
    customFields: report.customFields ?? {},
    createdAt: report.createdAt ?? sentAt ?? now,
  };
}

/** Inserts leads; one that is known already stays as it is. */
export function insertLeads(workspaceId: string, reported: ReportedLead[]): Statements<number[]> {
  const reports = reported.map((lead) => ({
    ...lead,
    customFields: JSON.stringify(lead.customFields),
  }));
  return inOrder(
    jsonParameters(reports).map((chunk) =>
      write(
        insertFrom(
          leads,
          {
            id: sql`r.value->>'id'`,
            workspaceId: sql`${workspaceId}`,
            reference: sql`r.value->>'reference'`,
            source: sql`r.value->>'source'`,
            agentId: sql`r.value->>'agentId'`,
            name: sql`r.value->>'name'`,
            email: sql`r.value->>'email'`,
            phone: sql`r.value->>'phone'`,
            customFields: sql`r.value->>'customFields'`,
            createdAt: sql`r.value->>'createdAt'`,
            eventId: sql`r.value->>'eventId'`,
          },
          sql`FROM json_each(${chunk}) AS r WHERE true ON CONFLICT (id) DO NOTHING`,
        ),
      ),
    ),
  );
}

/** Those of the leads that are in the workspace beside them. */
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
