import { and, eq, isNull, ne, type SQL, sql } from "drizzle-orm";
import { derivedId } from "../contract/ids.ts";
import type { Moment, PlatformRecord } from "../contract/platform.ts";
import type { Automation, AutomationStatus, AutomationType } from "../contract/resources.ts";
import { isServed } from "../contract/served.ts";
import { isoTime } from "../contract/time.ts";
import {
  type Database,
  inOrder,
  jsonParameters,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import { type PageRequest, pagesOf, pageValues, toPage } from "./page.ts";

export type AutomationRow = typeof automations.$inferSelect;
/** What a page reads of a row. */
type ShownAutomation = Parameters<typeof toAutomation>[0] & Pick<AutomationRow, "createdAt">;

/** Which automations a deployment shows: those triggered by a CRM are served apart. */
export interface Visibility {
  crmSource: boolean;
}

/** What a deployment that serves `servedRoutes` shows. */
export function visibilityOf(servedRoutes: string): Visibility {
  return { crmSource: isServed(servedRoutes, "automations.crm_source") };
}

export const AUTOMATIONS_LIST = "automations";

const pages = pagesOf<ShownAutomation>(
  "created_at",
  (kind) => sql`
  SELECT id, name, type, provider, agent_id AS agentId, agent_name AS agentName, status,
    updated_at AS updatedAt, created_at AS createdAt
  FROM automations
  WHERE workspace_id = ${sql.placeholder("workspaceId")} AND removed_at IS NULL
    AND ${kind === "social" ? sql`type <> 'crm_source'` : sql`type = 'crm_source'`}`,
);

/** One page of the workspace's automations, newest first. */
export async function listAutomations(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  request: PageRequest,
) {
  const readPage = visibility.crmSource ? pages.all : pages.social;
  const found = await retrying(() => readPage(db, { workspaceId, ...pageValues(request) }));
  const position = (row: ShownAutomation) => ({ at: row.createdAt, id: row.id });
  return toPage(AUTOMATIONS_LIST, found, request.limit, position, toAutomation);
}

/** One automation of the workspace; undefined when it has no such one. */
export async function findAutomation(
  db: Database,
  workspaceId: string,
  { crmSource }: Visibility,
  id: string,
): Promise<AutomationRow | undefined> {
  const [row] = await retrying(() =>
    db
      .select()
      .from(automations)
      .where(
        and(
          eq(automations.id, id),
          eq(automations.workspaceId, workspaceId),
          isNull(automations.removedAt),
          crmSource ? undefined : ne(automations.type, "crm_source"),
        ),
      ),
  );
  return row;
}

/** Whether automations of a type are shown, and so told of. */
export function shows({ crmSource }: Visibility, type: AutomationType | undefined): boolean {
  return crmSource || type !== "crm_source";
}

/** Sets the status of an automation that is still at `row.revision`. */
export function changeStatus(row: AutomationRow, changed: AutomationRow): Statements<number> {
  return write(sql`UPDATE ${automations} SET status = ${changed.status}, updated_at = ${changed.updatedAt},
    revision = ${changed.revision} WHERE ${isAtRevision(row)}`);
}

/** True in SQL while nobody has changed the automation since `row` was read. */
export function isAtRevision(row: AutomationRow): SQL {
  // One that was deleted and recorded again counts from 1 again.
  return sql`(${automations.id} = ${row.id} AND ${automations.revision} = ${row.revision}
    AND ${automations.createdAt} = ${row.createdAt})`;
}

/** An automation as the platform reports it. */
export interface ReportedAutomation {
  id: string;
  reference: string;
  type: AutomationType;
  provider: string;
  agentId: string;
  agentName: string;
  name: string;
  status: AutomationStatus;
  /** Since when it is so: as the report says, or else when that was received. */
  updatedAt: number;
  /** Whether the report says since when. */
  dated: boolean;
  /** What is stored and newer than this outlives the report; `null`: nothing is, it comes this moment. */
  asOf: number | null;
}

/** What the name of a social automation says of its kind, before the agent's name. */
const KIND_LABELS: Record<Exclude<AutomationType, "crm_source">, string> = {
  social_comments: "Réponse aux commentaires",
  social_story: "Réponse aux stories",
  social_messages: "Réponse aux messages",
  lead_ads: "Réponse aux formulaires publicitaires",
};

/** Reads what the platform reports of an automation: a social one's name is composed. */
export async function readAutomation(
  workspaceId: string,
  { agent, name, updatedAt, ...report }: PlatformRecord<"recordAutomations", "automations">,
  { sentAt, now }: Moment,
): Promise<ReportedAutomation> {
  return {
    ...report,
    id: await derivedId("automation", workspaceId, report.reference),
    agentId: await derivedId("agent", workspaceId, agent.reference),
    agentName: agent.name,
    name:
      report.type === "crm_source" ? (name ?? "") : `${KIND_LABELS[report.type]} – ${agent.name}`,
    updatedAt: updatedAt ?? sentAt ?? now,
    dated: updatedAt != null,
    asOf: updatedAt ?? sentAt,
  };
}

/**
 * Inserts automations, or brings those that are known up to date. A report that is older than what is
 * stored changes nothing; of two of the same time that differ, the one that arrives later counts.
 * Reads how many were not there, or had been removed.
 *
 * @param createdAt Unix milliseconds: since when those that are new are known.
 */
export function recordAutomations(
  workspaceId: string,
  reported: ReportedAutomation[],
  createdAt: number,
): Statements<number> {
  const same = sql`(known.reference, known.type, known.provider, known.agent_id, known.agent_name, known.name, known.status)
    IS (r.value->>'reference', r.value->>'type', r.value->>'provider', r.value->>'agentId', r.value->>'agentName', r.value->>'name', r.value->>'status')`;
  const isNew = sql`(known.id IS NULL OR known.removed_at IS NOT NULL)`;
  const chunks = jsonParameters(reported);
  const statements = inOrder([
    rows<{ created: number }>(sql`SELECT count(*) AS created
      FROM json_each(${JSON.stringify(reported.map(({ id }) => id))}) AS r
        LEFT JOIN ${automations} AS known ON known.id = r.value
      WHERE ${isNew}`),
    ...chunks.map((chunk) =>
      // Rare, and then all at once: runs are listed by the kind of their automation.
      write(sql`
      UPDATE ${runs} SET crm = NOT crm WHERE automation_id IN (
        SELECT known.id FROM json_each(${chunk}) AS r JOIN ${automations} AS known ON known.id = r.value->>'id'
        WHERE ${IS_IN_ORDER} AND (known.type = 'crm_source') <> (r.value->>'type' = 'crm_source'))`),
    ),
    ...chunks.map((chunk) =>
      write(sql`
      INSERT INTO ${automations} (id, workspace_id, reference, type, provider, agent_id, agent_name, name, status, updated_at, created_at)
      SELECT r.value->>'id', ${workspaceId}, r.value->>'reference', r.value->>'type', r.value->>'provider',
        r.value->>'agentId', r.value->>'agentName', r.value->>'name', r.value->>'status',
        r.value->>'updatedAt', ${createdAt}
      FROM json_each(${chunk}) AS r LEFT JOIN ${automations} AS known ON known.id = r.value->>'id'
      WHERE ${isNew} OR ${IS_IN_ORDER}
        AND (NOT ${same} OR r.value->>'dated' AND r.value->>'updatedAt' > known.updated_at)
      ON CONFLICT (id) DO UPDATE SET
        created_at = CASE WHEN automations.removed_at IS NULL THEN automations.created_at ELSE excluded.created_at END,
        generation = automations.generation + (automations.removed_at IS NOT NULL), removed_at = NULL,
        reference = excluded.reference, type = excluded.type, provider = excluded.provider,
        agent_id = excluded.agent_id, agent_name = excluded.agent_name, name = excluded.name,
        status = excluded.status, updated_at = excluded.updated_at, revision = automations.revision + 1`),
    ),
  ]);
  return readAs(statements, ([[counted]]) => counted?.created ?? 0);
}

/** True in SQL of a report `r` that is not older than the automation `known`. */
const IS_IN_ORDER = sql`coalesce(r.value->>'asOf' >= known.updated_at, true)`;

/** Condition on a draft: one of the reports moves its automation to another status, before they are recorded. */
export function isMoveOf(reported: ReportedAutomation[]): SQL {
  const moves = reported.map(({ id, status, asOf }) => ({ id, status, asOf }));
  return sql`draft.value->>'subject' IN (SELECT known.id
    FROM json_each(${JSON.stringify(moves)}) AS r JOIN ${automations} AS known ON known.id = r.value->>'id'
    WHERE known.status <> r.value->>'status' AND known.removed_at IS NULL AND ${IS_IN_ORDER})`;
}

/** An automation that something in its workspace refers to. */
export interface NamedAutomation {
  workspaceId: string;
  id: string;
  type: AutomationType;
  generation: number;
}

/** Those of the automations that are in the workspace beside them. */
export function selectAutomations(named: { workspaceId: string; id: string }[]) {
  return rows<NamedAutomation>(sql`SELECT a.workspace_id AS workspaceId, a.id AS id, a.type AS type,
      a.generation AS generation
    FROM json_each(${JSON.stringify(named)}) AS named JOIN ${automations} AS a
      ON a.id = named.value->>'id' AND a.workspace_id = named.value->>'workspaceId' AND a.removed_at IS NULL`);
}

/** The public shape. */
export function toAutomation(
  row: Pick<
    AutomationRow,
    "id" | "name" | "type" | "provider" | "agentId" | "agentName" | "status" | "updatedAt"
  >,
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
