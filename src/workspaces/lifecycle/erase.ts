import { and, type Column, eq, inArray, isNull, ne, notExists, type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn, SQLiteTable } from "drizzle-orm/sqlite-core";
import { qb } from "../../db/builder.ts";
import {
  CLEANUP_MAX,
  commit,
  type Database,
  type Executable,
  inOrder,
  readAs,
  rows,
  type Statements,
  write,
} from "../../db/client.ts";
import { DIRECTORY } from "../../db/databases.ts";
import {
  apiKeys,
  automations,
  earlierSecrets,
  emails,
  events,
  leads,
  type MoveState,
  moves,
  notices,
  removals,
  runs,
  subscriptions,
  workspaces,
} from "../../db/schema.ts";
import { BLANK_LEAD, blank, eraseEvents } from "../../records/erasure.ts";
import { CANCEL_PENDING } from "../../webhooks/endings.ts";
import { deleteSecretsOfDeleted } from "../../webhooks/secrets.ts";
import type { GatedKey } from "../api-keys.ts";

/**
 * Revokes all keys of a workspace, in the directory.
 *
 * @returns the keys, whose gates must be told, and the name of the workspace's database; null if
 *   there is no such workspace.
 */
export function closeKeys(
  workspaceId: string,
  now: number,
): Statements<{ keys: GatedKey[]; database: string } | null> {
  const isOf = eq(apiKeys.workspaceId, workspaceId);
  const { id, database } = workspaces;
  const statements = inOrder([
    qb
      .update(apiKeys)
      .set({ revokedAt: now })
      .where(and(isOf, isNull(apiKeys.revokedAt))),
    qb
      .select({ keyHash: apiKeys.keyHash, lastUsedAt: apiKeys.lastUsedAt })
      .from(apiKeys)
      .where(isOf),
    qb.select({ database }).from(workspaces).where(eq(id, workspaceId)),
  ]);
  return readAs(statements, ([, keys, [entry]]) =>
    entry ? { keys, database: entry.database ?? DIRECTORY } : null,
  );
}

/** Closes a workspace for good, in its database: its access ends, its subscriptions are deleted. */
export function closeWorkspace(id: string, now: number): Statements<unknown> {
  return inOrder([
    qb
      .update(workspaces)
      .set({ accessGranted: false })
      .where(and(eq(workspaces.id, id), eq(workspaces.accessGranted, true))),
    qb
      .update(subscriptions)
      .set({ deletedAt: now, ...CANCEL_PENDING })
      .where(and(eq(subscriptions.workspaceId, id), isNull(subscriptions.deletedAt))),
    // Done here: a dispatch may delete the subscription rows that these are found by.
    deleteSecretsOfDeleted(eq(subscriptions.workspaceId, id)),
  ]);
}

/**
 * Erases a closed workspace in chunks, until nothing remains or `mayGoOn` returns false; the next
 * call continues. The workspace itself goes last, once nothing refers to it.
 *
 * @returns how many rows remain.
 */
export async function eraseWorkspace(
  db: Database,
  id: string,
  mayGoOn: () => boolean,
): Promise<number> {
  let isLeft = await commit(db, eraseChunk(id));
  while (isLeft && mayGoOn()) isLeft = await commit(db, eraseChunk(id));
  // Counted once at the end, because it reads every remaining row.
  return isLeft ? commit(db, countRemaining(id)) : 0;
}

/**
 * Erases up to `CLEANUP_MAX` rows of each kind that a workspace left behind in a database that it has
 * moved away from. The workspace's own row stays, without its data key: `resealSecrets` does not reach it.
 *
 * @returns whether nothing else remains.
 */
export function eraseLeftBehind(id: string): Statements<boolean> {
  const enter = (state: MoveState) =>
    qb.update(moves).set({ state }).where(eq(moves.workspaceId, id));
  const { statements, isEmpty } = erasureOf(id);
  const chunk = inOrder([
    enter("erasing"),
    inOrder(statements),
    qb
      .update(workspaces)
      .set({ name: "", adminEmails: [], dataKey: null, webhooksMax: null })
      .where(eq(workspaces.id, id)),
    enter("gone"),
    rows<{ isEmpty: 0 | 1 }>(sql`SELECT ${isEmpty} AS "isEmpty"`),
  ]);
  return readAs(chunk, ([, , , , [found]]) => found?.isEmpty === 1);
}

/** A table whose rows belong to a workspace. */
type Owned = SQLiteTable & Record<"id" | "workspaceId", SQLiteColumn>;

/** The runs of a workspace; each kind has its own index. */
function runsOf(id: string): SQL {
  const ofKind = (
    isOfKind: SQL,
  ) => sql`SELECT ${runs.id} AS id, ${runs.occurredAt} AS at FROM ${runs}
    WHERE ${runs.workspaceId} = ${id} AND ${isOfKind}`;
  return sql`(${ofKind(sql`${runs.crm} = 0`)} UNION ALL ${ofKind(sql`${runs.crm} = 1`)})`;
}

/**
 * Erases up to `CLEANUP_MAX` rows of each kind, children before their parents; and the workspace
 * itself once nothing else is left.
 *
 * @returns whether the workspace is still there.
 */
function eraseChunk(id: string): Statements<boolean> {
  const { statements, isEmpty } = erasureOf(id);
  const isOwn = eq(workspaces.id, id);
  const chunk = inOrder([
    // It does not live here: no writes need to be kept out any more.
    qb.delete(moves).where(and(eq(moves.workspaceId, id), ne(moves.state, "erasing"))),
    ...statements,
    qb.delete(apiKeys).where(and(eq(apiKeys.workspaceId, id), isEmpty)),
    qb
      .update(workspaces)
      .set({
        name: blank(workspaces.name),
        adminEmails: blank(workspaces.adminEmails),
        dataKey: blank(workspaces.dataKey),
      })
      .where(and(isOwn, isEmpty)),
    qb.delete(moves).where(and(eq(moves.workspaceId, id), isEmpty)),
    qb.delete(workspaces).where(and(isOwn, isEmpty)),
  ]);
  const left = rows(qb.select({ id: workspaces.id }).from(workspaces).where(isOwn));
  return readAs(inOrder([chunk, left]), ([, found]) => found.length > 0);
}

/** The statements that erase a chunk of a workspace's rows, and a SQL condition: none are left. */
function erasureOf(id: string): { statements: Executable[]; isEmpty: SQL } {
  const isOf = ({ workspaceId }: { workspaceId: Column }) => eq(workspaceId, id);
  const idsOf = (table: Owned) => qb.select({ id: table.id }).from(table).where(isOf(table));
  const ownRuns = runsOf(id);
  const isWithoutRuns = sql`NOT EXISTS (SELECT 1 FROM ${ownRuns})`;
  const first = (table: Owned & { createdAt: SQLiteColumn }) =>
    inArray(table.id, idsOf(table).orderBy(table.createdAt, table.id).limit(CLEANUP_MAX));
  const someLeads = and(first(leads), isWithoutRuns);
  const isEmpty = and(
    notExists(idsOf(events)),
    isWithoutRuns,
    notExists(idsOf(leads)),
    notExists(idsOf(automations)),
  );
  // No index finds them by workspace, so they are only searched once the rest is erased; the CROSS
  // JOIN makes SQLite check that first.
  const ownNotices = sql`(SELECT ${notices.id} FROM (SELECT 1 WHERE ${isEmpty}) CROSS JOIN ${notices} WHERE ${isOf(notices)})`;
  const isOfNotice = inArray(emails.noticeId, ownNotices);
  const statements = [
    eraseEvents(id, idsOf(events).orderBy(events.id).limit(CLEANUP_MAX).getSQL()),
    qb
      .delete(runs)
      .where(sql`${runs.id} IN (SELECT id FROM ${ownRuns} ORDER BY at, id LIMIT ${CLEANUP_MAX})`),
    qb.update(leads).set(BLANK_LEAD).where(someLeads),
    qb.delete(leads).where(someLeads),
    qb
      .delete(removals)
      .where(and(isWithoutRuns, inArray(removals.automationId, idsOf(automations)))),
    qb.delete(automations).where(and(first(automations), isWithoutRuns)),
    qb
      .delete(earlierSecrets)
      .where(and(isEmpty, inArray(earlierSecrets.subscriptionId, idsOf(subscriptions)))),
    // Unique within the notice, because the recipient is part of the primary key.
    write(
      qb
        .update(emails)
        .set({ recipient: sql`printf('%0*d', length(CAST(${emails.recipient} AS BLOB)), rowid)` })
        .where(isOfNotice),
    ),
    qb.delete(emails).where(isOfNotice),
    qb.delete(notices).where(inArray(notices.id, ownNotices)),
    qb.delete(subscriptions).where(and(isOf(subscriptions), isEmpty)),
  ];
  return { statements, isEmpty: sql`(${isEmpty} AND ${notExists(idsOf(subscriptions))})` };
}

/** Counts the rows of a workspace that are not erased yet. */
function countRemaining(id: string): Statements<number> {
  const countOf = (source: SQL) => sql`(SELECT count(*) FROM ${source})`;
  const counts = [events, leads, automations, subscriptions, apiKeys].map((table) =>
    countOf(sql`${table} WHERE ${table.workspaceId} = ${id}`),
  );
  const all = [
    countOf(runsOf(id)),
    ...counts,
    countOf(sql`${workspaces} WHERE ${workspaces.id} = ${id}`),
  ];
  // Raw SQL: Drizzle cannot select without a table.
  const remaining = rows<{ remaining: number }>(
    sql`SELECT ${sql.join(all, sql` + `)} AS remaining`,
  );
  return readAs(remaining, ([row]) => row?.remaining ?? 0);
}
