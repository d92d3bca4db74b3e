import { and, eq, inArray, isNotNull, isNull, sql } from "drizzle-orm";
import { GATES_TOLD_MAX } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { select, selectDistinct, update } from "../db/builder.ts";
import {
  type Database,
  prepared,
  query,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { apiKeys, subscriptions, workspaces } from "../db/schema.ts";
import {
  isBehind,
  type Listing,
  newestFirst,
  type PageRequest,
  pageValues,
  ROWS,
  toListing,
} from "./page.ts";

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

/** A workspace as the platform sees it. */
interface WorkspaceEntry {
  workspaceId: string;
  name: string;
  accessGranted: boolean;
  createdAt: string;
}

const page = prepared(
  select({
    id: workspaces.id,
    name: workspaces.name,
    accessGranted: workspaces.accessGranted,
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
  const found = await query(db, page(pageValues(request)));
  const position = ({ createdAt, id }: (typeof found)[number]) => ({ at: createdAt, id });
  return toListing(found, request.limit, position, ({ id, name, accessGranted, createdAt }) => ({
    workspaceId: id,
    name,
    accessGranted,
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

/** Changes those of a workspace's fields that are given; gives 0 when there is no such workspace. */
export function updateWorkspace(
  id: string,
  { name, adminEmails }: Partial<Pick<typeof workspaces.$inferInsert, "name" | "adminEmails">>,
): Statements<number> {
  return write(
    update(workspaces)
      .set({
        name: name ?? sql`${workspaces.name}`,
        adminEmails: adminEmails ?? sql`${workspaces.adminEmails}`,
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
        isNull(apiKeys.revokedAt),
        isNotNull(apiKeys.lastUsedAt),
      ),
    )
    .limit(GATES_TOLD_MAX),
);

/**
 * The keys of the workspaces that the subscriptions belong to, without revoked ones and those that
 * were never used: a gate stays where it is first called, which is to be near its client.
 */
export function keysOfSubscribers(subscriptionIds: string[]) {
  return keys({ subscriptionIds: JSON.stringify(subscriptionIds) });
}
