import { type SQL, sql } from "drizzle-orm";
import { CLEANUP_MAX } from "../contract/limits.ts";
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
  attempts,
  automations,
  deliveries,
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
import { WITHDRAWN } from "./deliveries.ts";
import { resize } from "./event-size.ts";
import { deleteSecretsOfDeleted } from "./secrets.ts";

/*
 * What holds personal data is overwritten before it is deleted: a deleted row may stay readable in
 * the file until its place is used again, but one of the same size is written in place. Copies that
 * the database has left behind when it moved rows between pages are out of reach of SQL.
 */

/** As many bytes as the text has, that say nothing; null for none. */
function blank(text: SQL): SQL {
  return sql`CASE WHEN ${text} <> '' THEN printf('%.*c', length(CAST(${text} AS BLOB)), 'x') ELSE ${text} END`;
}

/**
 * Erases leads of the workspace, their names, addresses and fields; the events that tell of them,
 * with deliveries and attempts; and the links of their runs.
 */
export function eraseLeads(workspaceId: string, ids: string[]): Statements<unknown> {
  const named = sql`SELECT value FROM json_each(${JSON.stringify(ids)})`;
  // +: by their ids, not by going through all leads of the workspace.
  const own = sql`+workspace_id = ${workspaceId} AND id IN (${named})`;
  return inOrder([
    blankLeads(own),
    // Of leads that were recorded before their events were noted; looked for only if there are any.
    write(sql`UPDATE ${leads} SET event_id = e.id FROM ${events} AS e
      WHERE +${leads.workspaceId} = ${workspaceId} AND ${leads.id} IN (${named})
        AND ${leads.eventId} IS NULL AND e.type = 'lead.created'
        AND e.body->>'$.data.id' = ${leads.id} AND e.workspace_id = (
          SELECT workspace_id FROM ${leads} WHERE ${own} AND event_id IS NULL LIMIT 1)`),
    eraseEvents(
      workspaceId,
      sql`SELECT event_id FROM ${leads} WHERE ${own} AND event_id IS NOT NULL`,
    ),
    write(sql`UPDATE ${runs} SET lead_id = NULL
      WHERE lead_id IN (${named}) AND workspace_id = ${workspaceId}`),
    write(sql`DELETE FROM ${leads} WHERE ${own}`),
  ]);
}

/** Deletes events of the workspace, by their ids in `selected`, with deliveries and attempts. */
function eraseEvents(workspaceId: string, selected: SQL): Statements<unknown> {
  const theirs = sql`workspace_id = ${workspaceId} AND id IN (${selected})`;
  const owed = sql`SELECT o.value, ev.id FROM ${events} AS ev JOIN json_each(ev.owed) AS o
    WHERE ev.workspace_id = ${workspaceId} AND ev.id IN (${selected})`;
  return inOrder([
    write(sql`DELETE FROM ${attempts} WHERE (subscription_id, event_id) IN (${owed})`),
    write(sql`DELETE FROM ${deliveries} WHERE (subscription_id, event_id) IN (${owed})`),
    resize(
      -1,
      sql`FROM ${events} AS e WHERE e.workspace_id = ${workspaceId} AND e.id IN (${selected})`,
    ),
    write(sql`UPDATE ${events} SET body = ${blank(sql`body`)} WHERE ${theirs}`),
    write(sql`DELETE FROM ${events} WHERE ${theirs}`),
  ]);
}

function blankLeads(condition: SQL): Statements<unknown> {
  return write(sql`UPDATE ${leads} SET name = ${blank(sql`name`)}, email = ${blank(sql`email`)},
    phone = ${blank(sql`phone`)}, custom_fields = ${blank(sql`custom_fields`)} WHERE ${condition}`);
}

/**
 * Closes a workspace for good: its access ends, its keys are revoked, its subscriptions are deleted.
 *
 * @returns all its keys, whose gates must be told; null when there is no such workspace.
 */
export function closeWorkspace(id: string, now: number): Statements<GatedKey[] | null> {
  const statements = inOrder([
    write(sql`UPDATE ${workspaces} SET access_granted = 0 WHERE id = ${id} AND access_granted`),
    write(sql`UPDATE ${apiKeys} SET revoked_at = ${now}
      WHERE workspace_id = ${id} AND revoked_at IS NULL`),
    write(sql`UPDATE ${subscriptions} SET deleted_at = ${now}, ${WITHDRAWN}
      WHERE workspace_id = ${id} AND deleted_at IS NULL`),
    // A dispatch may delete the rows, by which they are found.
    deleteSecretsOfDeleted(sql`workspace_id = ${id}`),
    rows<GatedKey>(
      sql`SELECT key_hash AS keyHash, last_used_at AS lastUsedAt FROM ${apiKeys} WHERE workspace_id = ${id}`,
    ),
    rows<{ id: string }>(sql`SELECT id FROM ${workspaces} WHERE id = ${id}`),
  ]);
  return readAs(statements, ([, , , , keys, known]) => (known.length === 0 ? null : keys));
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
  let isLeft = await commit(db, erasePiece(id));
  while (isLeft && mayGoOn()) isLeft = await commit(db, erasePiece(id));
  // Once: it reads all that is left.
  return isLeft ? commit(db, countRemaining(id)) : 0;
}

/** The runs of a workspace in SQL: those of each kind have an index of their own. */
function runsOf(id: string): SQL {
  const ofKind = (crm: 0 | 1) => sql`SELECT id, workspace_id, occurred_at FROM ${runs}
    WHERE workspace_id = ${id} AND crm = ${sql.raw(String(crm))}`;
  return sql`(${ofKind(0)} UNION ALL ${ofKind(1)})`;
}

/**
 * Erases up to `CLEANUP_MAX` rows of each kind, what refers to others before these; gives whether the
 * workspace is left.
 */
function erasePiece(id: string): Statements<boolean> {
  const own = sql`workspace_id = ${id}`;
  const ownRuns = runsOf(id);
  const isWithoutRuns = sql`NOT EXISTS (SELECT 1 FROM ${ownRuns})`;
  const isOfNotice = sql`notice_id IN (SELECT id FROM ${notices} WHERE ${own})`;
  const first = (table: SQL, order: SQL) =>
    sql`id IN (SELECT id FROM ${table} WHERE ${own} ORDER BY ${order} LIMIT ${CLEANUP_MAX})`;
  const someLeads = sql`${first(sql`${leads}`, sql`created_at, id`)} AND ${isWithoutRuns}`;
  const isEmpty = sql.join(
    [sql`${events}`, ownRuns, sql`${leads}`, sql`${automations}`].map(
      (table) => sql`NOT EXISTS (SELECT 1 FROM ${table} WHERE ${own})`,
    ),
    sql` AND `,
  );
  const piece = inOrder([
    eraseEvents(id, sql`SELECT id FROM ${events} WHERE ${own} ORDER BY id LIMIT ${CLEANUP_MAX}`),
    write(sql`DELETE FROM ${runs} WHERE ${first(ownRuns, sql`occurred_at, id`)}`),
    blankLeads(someLeads),
    write(sql`DELETE FROM ${leads} WHERE ${someLeads}`),
    write(sql`DELETE FROM ${removals} WHERE ${isWithoutRuns}
      AND automation_id IN (SELECT id FROM ${automations} WHERE ${own})`),
    write(sql`DELETE FROM ${automations}
      WHERE ${first(sql`${automations}`, sql`created_at, id`)} AND ${isWithoutRuns}`),
    write(sql`DELETE FROM ${earlierSecrets} WHERE ${isEmpty}
      AND subscription_id IN (SELECT id FROM ${subscriptions} WHERE ${own})`),
    // No two of a notice have the same text.
    write(sql`UPDATE ${emails} SET recipient = printf('%0*d', length(CAST(recipient AS BLOB)), rowid)
      WHERE ${isOfNotice} AND ${isEmpty}`),
    write(sql`DELETE FROM ${emails} WHERE ${isOfNotice} AND ${isEmpty}`),
    write(sql`DELETE FROM ${notices} WHERE ${own} AND ${isEmpty}`),
    write(sql`DELETE FROM ${subscriptions} WHERE ${own} AND ${isEmpty}`),
    write(sql`DELETE FROM ${apiKeys} WHERE ${own} AND ${isEmpty}`),
    write(sql`UPDATE ${workspaces} SET name = ${blank(sql`name`)}, admin_emails = ${blank(sql`admin_emails`)}
      WHERE id = ${id} AND ${isEmpty}`),
    write(sql`DELETE FROM ${workspaces} WHERE id = ${id} AND ${isEmpty}`),
  ]);
  const left = rows<{ id: string }>(sql`SELECT id FROM ${workspaces} WHERE id = ${id}`);
  return readAs(inOrder([piece, left]), ([, found]) => found.length > 0);
}

/** Counts the rows of a workspace that are still to be erased. */
function countRemaining(id: string): Statements<number> {
  const counts = sql.join(
    [
      sql`${events}`,
      runsOf(id),
      ...[leads, automations, subscriptions, apiKeys].map((t) => sql`${t}`),
    ].map((table) => sql`(SELECT count(*) FROM ${table} WHERE workspace_id = ${id})`),
    sql` + `,
  );
  const remaining = rows<{ remaining: number }>(
    sql`SELECT ${counts} + (SELECT count(*) FROM ${workspaces} WHERE id = ${id}) AS remaining`,
  );
  return readAs(remaining, ([row]) => row?.remaining ?? 0);
}
