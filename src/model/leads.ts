import { sql } from "drizzle-orm";
import { derivedId } from "../contract/ids.ts";
import type { Moment, PlatformRecord } from "../contract/platform.ts";
import type { Lead, LeadSource } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import {
  type Database,
  inOrder,
  jsonParameters,
  prepared,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { leads } from "../db/schema.ts";
import { type PageRequest, pageOrder, pageValues, toPage } from "./page.ts";

type LeadRow = Omit<typeof leads.$inferSelect, "workspaceId" | "reference" | "eventId">;
/** A row as SQL gives it. */
type StoredLead = Omit<LeadRow, "customFields"> & { customFields: string };

export const LEADS_LIST = "leads";

const readPage = prepared<StoredLead>(sql`
  SELECT id, source, agent_id AS agentId, name, email, phone, custom_fields AS customFields,
    created_at AS createdAt
  FROM leads WHERE workspace_id = ${sql.placeholder("workspaceId")} ${pageOrder("created_at")}`);

/** One page of the workspace's leads, newest first. */
export async function listLeads(db: Database, workspaceId: string, request: PageRequest) {
  const values = { workspaceId, ...pageValues(request) };
  const found = await retrying(() => readPage(db, values));
  const position = (row: StoredLead) => ({ at: row.createdAt, id: row.id });
  const toItem = (row: StoredLead) =>
    toLead({ ...row, customFields: JSON.parse(row.customFields) });
  return toPage(LEADS_LIST, found, request.limit, position, toItem);
}

/** A lead as the platform reports it. */
export interface ReportedLead {
  id: string;
  reference: string;
  source: LeadSource;
  agentId: string;
  name: string | null;
  email: string | null;
  phone: string | null;
  customFields: Record<string, unknown>;
  createdAt: number;
  /** The event that announces it, unless it is known already. */
  eventId?: string | null;
}

/** Reads what the platform reports of a lead; without `createdAt`, it dates from when it was sent. */
export async function readLead(
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
export function recordLeads(workspaceId: string, reported: ReportedLead[]): Statements<number[]> {
  const reports = reported.map((lead) => ({
    ...lead,
    customFields: JSON.stringify(lead.customFields),
  }));
  return inOrder(
    jsonParameters(reports).map((chunk) =>
      write(sql`
      INSERT INTO ${leads} (id, workspace_id, reference, source, agent_id, name, email, phone, custom_fields, created_at, event_id)
      SELECT r.value->>'id', ${workspaceId}, r.value->>'reference', r.value->>'source', r.value->>'agentId',
        r.value->>'name', r.value->>'email', r.value->>'phone', r.value->>'customFields', r.value->>'createdAt',
        r.value->>'eventId'
      FROM json_each(${chunk}) AS r
      WHERE true
      ON CONFLICT (id) DO NOTHING`),
    ),
  );
}

/** Those of the leads that are in the workspace beside them: `workspaceId`, `id`. */
export function selectLeads(named: { workspaceId: string; id: string }[]) {
  return rows<{
    workspaceId: string;
    id: string;
  }>(sql`SELECT l.workspace_id AS workspaceId, l.id AS id
    FROM json_each(${JSON.stringify(named)}) AS named JOIN ${leads} AS l
      ON l.id = named.value->>'id' AND l.workspace_id = named.value->>'workspaceId'`);
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
