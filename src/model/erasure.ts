import {
  and,
  type Column,
  eq,
  inArray,
  isNotNull,
  isNull,
  notExists,
  type SQL,
  sql,
} from "drizzle-orm";
import { alias, type SQLiteColumn, type SQLiteTable } from "drizzle-orm/sqlite-core";
import { CLEANUP_MAX } from "../contract/limits.ts";
import { deleteFrom, select, update } from "../db/builder.ts";
import {
  commit,
  type Database,
  inOrder,
  readAs,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import {
  apiKeys,
  automations,
  earlierSecrets,
  emails,
  events,
  leads,
  notices,
  removals,
  runs,
  subscriptions,
  workspaces,
} from "../db/schema.ts";
import type { GatedKey } from "./api-keys.ts";
import { WITHDRAWN } from "./endings.ts";
import { resize } from "./event-size.ts";
import { deleteDeliveries } from "./retention.ts";

/*
 * What holds personal data is overwritten before it is deleted: a deleted row may stay readable in
 * the file until its place is used again, but one of the same size is written in place. Copies that
 * the database has left behind when it moved rows between pages are out of reach of SQL.
 */

/** As many bytes as the text has, that say nothing; null for none. */
function blank(text: Column): SQL {
  return sql`CASE WHEN ${text} <> '' THEN printf('%.*c', length(CAST(${text} AS BLOB)), 'x') ELSE ${text} END`;
}

/**
 * Erases leads of the workspace, their names, addresses and fields; the events that tell of them,
 * with deliveries and attempts; and the links of their runs.
 */
export function eraseLeads(workspaceId: string, ids: string[]): Statements<unknown> {
  const named = sql`(SELECT value FROM json_each(${JSON.stringify(ids)}))`;
  const isOwn = and(eq(leads.workspaceId, workspaceId), inArray(leads.id, named));
  const other = alias(leads, "other");
  return inOrder([
    blankLeads(isOwn),
    // Of leads that were recorded before their events were noted; looked for only if there are any.
    write(
      update(leads)
        .set({ eventId: sql`${events.id}` })
        .from(events)
        .where(
          and(
            isOwn,
            isNull(leads.eventId),
            eq(events.workspaceId, workspaceId),
            eq(events.type, "lead.created"),
            sql`${events.body}->>'$.data.id' = ${leads.id}`,
            sql`EXISTS (SELECT 1 FROM ${leads} AS other WHERE ${other.workspaceId} = ${workspaceId}
              AND ${other.id} IN ${named} AND ${other.eventId} IS NULL)`,
          ),
        ),
    ),
    eraseEvents(
      workspaceId,
      select({ id: leads.eventId })
        .from(leads)
        .where(and(isOwn, isNotNull(leads.eventId)))
        .getSQL(),
    ),
    update(runs)
      .set({ leadId: null })
      .where(and(inArray(runs.leadId, named), eq(runs.workspaceId, workspaceId))),
    deleteFrom(leads).where(isOwn),
  ]);
}

/** Deletes events of the workspace, by their ids in `selected`, with deliveries and attempts. */
function eraseEvents(workspaceId: string, selected: SQL): Statements<unknown> {
  const isSelected = sql`${events.workspaceId} = ${workspaceId} AND ${events.id} IN (${selected})`;
  return inOrder([
    deleteDeliveries(
      sql`SELECT o.value, ${events.id} FROM ${events} JOIN json_each(${events.owed}) AS o WHERE ${isSelected}`,
    ),
    resize(-1, sql`FROM ${events} WHERE ${isSelected}`),
    update(events)
      .set({ body: blank(events.body) })
      .where(isSelected),
    deleteFrom(events).where(isSelected),
  ]);
}

function blankLeads(condition: SQL | undefined): Statements<unknown> {
  const { name, email, phone, customFields } = leads;
  return write(
    update(leads)
      .set({
        name: blank(name),
        email: blank(email),
        phone: blank(phone),
        customFields: blank(customFields),
      })
      .where(condition),
  );
}

/**
 * Closes a workspace for good: its access ends, its keys are revoked, its subscriptions are deleted.
 *
 * @returns all its keys, whose gates must be told; null when there is no such workspace.
 */
export function closeWorkspace(id: string, now: number): Statements<GatedKey[] | null> {
  const statements = inOrder([
    update(workspaces)
      .set({ accessGranted: false })
      .where(and(eq(workspaces.id, id), eq(workspaces.accessGranted, true))),
    update(apiKeys)
      .set({ revokedAt: now })
      .where(and(eq(apiKeys.workspaceId, id), isNull(apiKeys.revokedAt))),
    update(subscriptions)
      .set({ deletedAt: now, ...WITHDRAWN })
      .where(and(eq(subscriptions.workspaceId, id), isNull(subscriptions.deletedAt))),
    select({ keyHash: apiKeys.keyHash, lastUsedAt: apiKeys.lastUsedAt })
      .from(apiKeys)
      .where(eq(apiKeys.workspaceId, id)),
    select({ id: workspaces.id }).from(workspaces).where(eq(workspaces.id, id)),
  ]);
  return readAs(statements, ([, , , keys, known]) => (known.length === 0 ? null : keys));
}

/**
 * Erases a closed workspace in pieces, until nothing remains or `mayGoOn` says no; the next call goes
 * on from there. The workspace itself goes last, and only once nothing refers to it.
 *
 * @returns how many rows remain.
 */
export async function eraseWorkspace(
  db: Database,
  id: string,
  mayGoOn: () => boolean,
): Promise<number> {
  let remaining = await commit(db, erasePiece(id));
  while (remaining > 0 && mayGoOn()) {
    const before = remaining;
    remaining = await commit(db, erasePiece(id));
    // Somebody records into it as fast: the next call goes on.
    if (remaining >= before) break;
  }
  return remaining;
}

/** A table whose rows belong to a workspace. */
type Owned = SQLiteTable & Record<"id" | "workspaceId", SQLiteColumn>;

/** Erases up to `CLEANUP_MAX` rows of each kind, what refers to others before these. */
function erasePiece(id: string): Statements<number> {
  const isOf = ({ workspaceId }: { workspaceId: Column }) => eq(workspaceId, id);
  const idsOf = (table: Owned) => select({ id: table.id }).from(table).where(isOf(table));
  // The runs of each kind have an index of their own.
  const ownRuns = sql`(SELECT ${runs.id} AS id, ${runs.occurredAt} AS at FROM ${runs} WHERE ${isOf(runs)} AND ${runs.crm} = 0
    UNION ALL SELECT ${runs.id}, ${runs.occurredAt} FROM ${runs} WHERE ${isOf(runs)} AND ${runs.crm} = 1)`;
  const isWithoutRuns = sql`NOT EXISTS (SELECT 1 FROM ${ownRuns})`;
  const isOfNotice = inArray(emails.noticeId, idsOf(notices));
  const first = (table: Owned & { createdAt: SQLiteColumn }) =>
    and(
      isOf(table),
      inArray(table.id, idsOf(table).orderBy(table.createdAt, table.id).limit(CLEANUP_MAX)),
    );
  const someLeads = and(first(leads), isWithoutRuns);
  const isEmpty = and(
    notExists(idsOf(events)),
    isWithoutRuns,
    notExists(idsOf(leads)),
    notExists(idsOf(automations)),
  );
  const countOf = (rows: SQL) => sql`(SELECT count(*) FROM ${rows})`;
  const counts = [events, leads, automations, subscriptions, apiKeys].map((table) =>
    countOf(sql`${table} WHERE ${isOf(table)}`),
  );
  const isOwn = eq(workspaces.id, id);
  const remaining = [countOf(ownRuns), ...counts, countOf(sql`${workspaces} WHERE ${isOwn}`)];
  const piece = inOrder([
    eraseEvents(id, idsOf(events).orderBy(events.id).limit(CLEANUP_MAX).getSQL()),
    deleteFrom(runs).where(
      and(
        isOf(runs),
        sql`${runs.id} IN (SELECT id FROM ${ownRuns} ORDER BY at, id LIMIT ${CLEANUP_MAX})`,
      ),
    ),
    blankLeads(someLeads),
    deleteFrom(leads).where(someLeads),
    deleteFrom(removals).where(
      and(isWithoutRuns, inArray(removals.automationId, idsOf(automations))),
    ),
    deleteFrom(automations).where(and(first(automations), isWithoutRuns)),
    deleteFrom(earlierSecrets).where(
      and(isEmpty, inArray(earlierSecrets.subscriptionId, idsOf(subscriptions))),
    ),
    // No two of a notice have the same text.
    write(
      update(emails)
        .set({ recipient: sql`printf('%0*d', length(CAST(${emails.recipient} AS BLOB)), rowid)` })
        .where(and(isOfNotice, isEmpty)),
    ),
    deleteFrom(emails).where(and(isOfNotice, isEmpty)),
    deleteFrom(notices).where(and(isOf(notices), isEmpty)),
    deleteFrom(subscriptions).where(and(isOf(subscriptions), isEmpty)),
    deleteFrom(apiKeys).where(and(isOf(apiKeys), isEmpty)),
    update(workspaces)
      .set({ name: blank(workspaces.name), adminEmails: blank(workspaces.adminEmails) })
      .where(and(isOwn, isEmpty)),
    deleteFrom(workspaces).where(and(isOwn, isEmpty)),
  ]);
  // Raw: Drizzle selects from a table.
  const left = rows<{ remaining: number }>(
    sql`SELECT ${sql.join(remaining, sql` + `)} AS remaining`,
  );
  return readAs(inOrder([piece, left]), ([, [row]]) => row?.remaining ?? 0);
}
