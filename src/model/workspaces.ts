import { and, eq, inArray, isNotNull, isNull, sql } from "drizzle-orm";
import { GATES_TOLD_MAX, SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { insertFrom, select, selectDistinct, update } from "../db/builder.ts";
import {
  commit,
  type Database,
  prepared,
  query,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { apiKeys, subscriptions, workspaces } from "../db/schema.ts";
import { isLive } from "./api-keys.ts";
import {
  byCreation,
  isBehind,
  type Listing,
  listPage,
  newestFirst,
  type PageRequest,
  ROWS,
} from "./page.ts";

/** Inserts a workspace that has access to the service. */
export function insertWorkspace(
  db: Database,
  workspace: { id: string; name: string; adminEmails: string[]; createdAt: number },
) {
  return commit(db, insertFrom(workspaces, workspace, sql`WHERE true ON CONFLICT DO NOTHING`));
}

/** Whether there is such a workspace. */
export async function workspaceExists(db: Database, id: string): Promise<boolean> {
  const found = await query(
    db,
    select({ id: workspaces.id }).from(workspaces).where(eq(workspaces.id, id)),
  );
  return found.length > 0;
}

/** Subscriptions that a workspace may have, in SQL. */
export const WEBHOOKS_MAX = sql<number>`coalesce(${workspaces.webhooksMax}, ${SUBSCRIPTIONS_MAX})`;

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
  const { id, workspaceId: itsWorkspace, deletedAt } = subscriptions;
  const [row = null] = await query(
    db,
    select({
      name: workspaces.name,
      accessGranted: workspaces.accessGranted,
      webhooksMax: WEBHOOKS_MAX,
      webhookFound: sql`${id} IS NOT NULL`.mapWith(Boolean),
    })
      .from(workspaces)
      .leftJoin(
        subscriptions,
        and(eq(id, webhookId ?? ""), eq(itsWorkspace, workspaces.id), isNull(deletedAt)),
      )
      .where(eq(workspaces.id, workspaceId)),
  );
  return row;
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

const page = prepared(
  select({
    id: workspaces.id,
    name: workspaces.name,
    accessGranted: workspaces.accessGranted,
    webhooksMax: WEBHOOKS_MAX,
    createdAt: workspaces.createdAt,
  })
    .from(workspaces)
    .where(isBehind(workspaces.createdAt, workspaces.id))
    .orderBy(...newestFirst(workspaces.createdAt, workspaces.id))
    .limit(ROWS),
);

/** One page of all workspaces, newest first. */
export async function listWorkspaces(
  db: Database,
  request: PageRequest,
): Promise<Listing<WorkspaceEntry>> {
  return listPage(db, page, {}, request, byCreation, ({ id, createdAt, ...row }) => ({
    workspaceId: id,
    ...row,
    createdAt: isoTime(createdAt),
  }));
}

/** Those of the workspaces that there are. */
export function findWorkspaces(ids: string[]) {
  return rows(
    select({ id: workspaces.id })
      .from(workspaces)
      .where(inArray(workspaces.id, sql`(SELECT value FROM json_each(${JSON.stringify(ids)}))`)),
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
  return write(
    update(workspaces)
      .set({
        name: name ?? sql`${workspaces.name}`,
        adminEmails: adminEmails ?? sql`${workspaces.adminEmails}`,
        webhooksMax: webhooksMax ?? sql`${workspaces.webhooksMax}`,
      })
      .where(eq(workspaces.id, id)),
  );
}

/** Grants or denies a workspace access to the service. */
export function updateAccess(id: string, granted: boolean): Statements<number> {
  return write(update(workspaces).set({ accessGranted: granted }).where(eq(workspaces.id, id)));
}

const keys = prepared(
  selectDistinct({ keyHash: apiKeys.keyHash })
    .from(sql`json_each(${sql.placeholder("subscriptionIds")}) AS woken`)
    .innerJoin(subscriptions, sql`${subscriptions.id} = woken.value`)
    .innerJoin(
      apiKeys,
      and(
        eq(apiKeys.workspaceId, subscriptions.workspaceId),
        isLive(sql.placeholder("now")),
        isNotNull(apiKeys.lastUsedAt),
      ),
    )
    .limit(GATES_TOLD_MAX),
);

/**
 * The live keys of the workspaces that the subscriptions belong to, without those that were never
 * used: a gate stays where it is first called, which is to be near its client.
 */
export function keysOfSubscribers(subscriptionIds: string[], now: number) {
  return keys({ subscriptionIds: JSON.stringify(subscriptionIds), now });
}
