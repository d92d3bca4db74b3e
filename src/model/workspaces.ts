import { eq, sql } from "drizzle-orm";
import { WORKSPACES_LIST } from "../contract/cursor.ts";
import { GATES_TOLD_MAX, SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import type { Page } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { type Database, prepared, retrying, rows, type Statements, write } from "../db/client.ts";
import { apiKeys, subscriptions, workspaces } from "../db/schema.ts";
import { isLive } from "./api-keys.ts";
import { type PageRequest, pageOrder, pageValues, toPage } from "./page.ts";

/** Inserts a workspace that has access to the service. */
export function insertWorkspace(
  db: Database,
  workspace: { id: string; name: string; adminEmails: string[]; createdAt: number },
) {
  return retrying(() => db.insert(workspaces).values(workspace).onConflictDoNothing());
}

/** Whether there is such a workspace. */
export async function workspaceExists(db: Database, id: string): Promise<boolean> {
  const found = await retrying(() =>
    db.select({ id: workspaces.id }).from(workspaces).where(eq(workspaces.id, id)),
  );
  return found.length > 0;
}

/** What a link to the portal opens of a workspace. */
export interface PortalAccess {
  name: string;
  accessGranted: boolean;
  /** Subscriptions that it may have. */
  webhooksMax: number;
  /** Whether the subscription that was asked for is one of the workspace. */
  webhookFound: boolean;
}

/**
 * What a link to the portal opens of a workspace, and of one of its subscriptions; `null` when there
 * is no such workspace.
 */
export async function findPortalAccess(
  db: Database,
  workspaceId: string,
  webhookId: string | null,
): Promise<PortalAccess | null> {
  const [row] = await retrying(() =>
    db.all<{ name: string; accessGranted: 0 | 1; webhooksMax: number; webhookFound: 0 | 1 }>(sql`
    SELECT w.name AS name, w.access_granted AS accessGranted,
      coalesce(w.webhooks_max, ${SUBSCRIPTIONS_MAX}) AS webhooksMax,
      EXISTS (SELECT 1 FROM ${subscriptions} AS s WHERE s.id = ${webhookId}
        AND s.workspace_id = w.id AND s.deleted_at IS NULL) AS webhookFound
    FROM ${workspaces} AS w WHERE w.id = ${workspaceId}`),
  );
  if (!row) return null;
  const { accessGranted, webhookFound, ...shown } = row;
  return { ...shown, accessGranted: accessGranted === 1, webhookFound: webhookFound === 1 };
}

/** A workspace as the platform sees it. */
interface WorkspaceEntry {
  workspaceId: string;
  name: string;
  accessGranted: boolean;
  /** Subscriptions that it may have. */
  webhooksMax: number;
  createdAt: string;
}

type StoredWorkspace = Pick<
  typeof workspaces.$inferSelect,
  "id" | "name" | "webhooksMax" | "createdAt"
> & {
  accessGranted: number;
};

const readPage = prepared<StoredWorkspace>(sql`
  SELECT id, name, access_granted AS accessGranted, webhooks_max AS webhooksMax,
    created_at AS createdAt
  FROM workspaces WHERE true ${pageOrder("created_at")}`);

/** One page of all workspaces, newest first. */
export async function listWorkspaces(
  db: Database,
  request: PageRequest,
): Promise<Page<WorkspaceEntry>> {
  const found = await retrying(() => readPage(db, pageValues(request)));
  const position = (row: StoredWorkspace) => ({ at: row.createdAt, id: row.id });
  return toPage(WORKSPACES_LIST, found, request.limit, position, (row) => ({
    workspaceId: row.id,
    name: row.name,
    accessGranted: row.accessGranted === 1,
    webhooksMax: row.webhooksMax ?? SUBSCRIPTIONS_MAX,
    createdAt: isoTime(row.createdAt),
  }));
}

/** Those of the workspaces that there are. */
export function selectWorkspaces(ids: string[]) {
  return rows<{ id: string }>(
    sql`SELECT id FROM ${workspaces} WHERE id IN (SELECT value FROM json_each(${JSON.stringify(ids)}))`,
  );
}

/** What may change of a workspace; what is null or left out stays. */
interface WorkspaceChanges {
  name?: string | null | undefined;
  adminEmails?: string[] | null | undefined;
  webhooksMax?: number | null | undefined;
}

/** Changes those of a workspace's fields that are given; gives 0 when there is no such workspace. */
export function updateWorkspace(
  id: string,
  { name, adminEmails, webhooksMax }: WorkspaceChanges,
): Statements<number> {
  return write(sql`
    UPDATE ${workspaces} SET name = coalesce(${name ?? null}, name),
      admin_emails = coalesce(${adminEmails ? JSON.stringify(adminEmails) : null}, admin_emails),
      webhooks_max = coalesce(${webhooksMax ?? null}, webhooks_max)
    WHERE id = ${id}`);
}

/** Grants or denies a workspace access to the service. */
export function updateAccess(id: string, granted: boolean): Statements<number> {
  return write(sql`UPDATE ${workspaces} SET access_granted = ${granted ? 1 : 0} WHERE id = ${id}`);
}

/**
 * The live keys of the workspaces that the subscriptions belong to, without those that were never
 * used: a gate stays where it is first called, which is to be near its client.
 */
export function keysOfSubscribers(subscriptionIds: string[], now: number) {
  return rows<{ keyHash: string }>(sql`
    SELECT DISTINCT k.key_hash AS keyHash
    FROM json_each(${JSON.stringify(subscriptionIds)}) AS woken
      JOIN ${subscriptions} AS s ON s.id = woken.value
      JOIN ${apiKeys} AS k ON k.workspace_id = s.workspace_id
        AND ${isLive(now)} AND k.last_used_at IS NOT NULL
    LIMIT ${GATES_TOLD_MAX}`);
}
