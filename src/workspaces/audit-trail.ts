import { and, type Column, eq, inArray, isNotNull, type SQL, sql } from "drizzle-orm";
import { AUDIT_KEPT_DAYS, PAGE_LIMIT, PORTAL_CHANGES_KEPT } from "../contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import {
  CLEANUP_MAX,
  commit,
  counted,
  type Database,
  type Part,
  type Statements,
} from "../db/client.ts";
import { DIRECTORY } from "../db/databases.ts";
import { isOnPage, type Page, type PageRequest, preparePage } from "../db/page.ts";
import { auditTrail, workspaces } from "../db/schema.ts";
import { queryIfReachable } from "./placement.ts";

/** An entry of the audit trail, which is in the directory. */
export type AuditEntry = typeof auditTrail.$inferInsert;

/** The `via` of changes that were made in the portal. */
export const VIA_PORTAL = "portal";

/**
 * Inserts an entry, unless it is stored already. If its workspace is erased, or about to be, the entry has no change:
 * `clearChanges` may have cleared the others already.
 */
export async function insertAuditEntry(db: Database, entry: AuditEntry): Promise<void> {
  const { webhookId, before, after } = auditTrail;
  const isErased = sql`NOT EXISTS (SELECT 1 FROM ${workspaces}
    WHERE ${workspaces.id} = ${entry.workspaceId} AND NOT ${workspaces.erasing})`;
  const unlessErased = (column: Column, value: unknown) =>
    sql`iif(${isErased}, NULL, ${sql.param(value ?? null, column)})`;
  const change = {
    webhookId: unlessErased(webhookId, entry.webhookId),
    before: unlessErased(before, entry.before),
    after: unlessErased(after, entry.after),
  };
  await commit(db, {
    inserted: insertFrom(
      auditTrail,
      { ...entry, ...change },
      sql`WHERE true`,
    ).onConflictDoNothing(),
    pruned:
      entry.via === VIA_PORTAL && entry.workspaceId ? pruneChanges(entry.workspaceId) : undefined,
  });
}

/** Maximum entries that one insertion prunes. */
const PRUNED_MAX = 10;

/**
 * Deletes the oldest changes that a workspace made in its portal, beyond `PORTAL_CHANGES_KEPT`, so that no tenant can
 * fill the database that it shares with others. Calls of the platform stay.
 */
function pruneChanges(workspaceId: string): Part {
  const { at, id, via } = auditTrail;
  const isChange = and(eq(auditTrail.workspaceId, workspaceId), isNotNull(auditTrail.webhookId));
  return sql`DELETE FROM ${auditTrail} WHERE ${via} = ${VIA_PORTAL} AND (${at}, ${id}) IN (
    SELECT ${at}, ${id} FROM ${auditTrail} WHERE ${isChange}
    ORDER BY ${at} DESC, ${id} DESC LIMIT ${PRUNED_MAX} OFFSET ${PORTAL_CHANGES_KEPT})`;
}

/**
 * Clears the changes in the entries of an erased workspace, a chunk at a time, because URLs and descriptions may be
 * personal data. The entries themselves stay. Reads how many entries it has cleared.
 */
export function clearChanges(workspaceId: string): Statements<number> {
  const { at, id, webhookId } = auditTrail;
  const isChange = and(eq(auditTrail.workspaceId, workspaceId), isNotNull(webhookId));
  return counted(
    qb
      .update(auditTrail)
      .set({ webhookId: null, before: null, after: null })
      .where(
        sql`(${at}, ${id}) IN (SELECT ${at}, ${id} FROM ${auditTrail} WHERE ${isChange} LIMIT ${CLEANUP_MAX})`,
      ),
  );
}

const ENTRY_ORDER = { at: auditTrail.at, id: auditTrail.id };
const prepareEntries = (condition?: SQL) =>
  preparePage({
    order: ENTRY_ORDER,
    query: qb
      .select()
      .from(auditTrail)
      .where(and(condition, isOnPage(ENTRY_ORDER))),
  });
const readAll = prepareEntries();
const readOfWorkspace = prepareEntries(eq(auditTrail.workspaceId, sql.placeholder("workspaceId")));

/** Reads one page of the audit trail of one workspace, or of all of them, newest first. */
export function listAuditEntries(
  db: Database,
  workspaceId: string | null,
  request: PageRequest,
): Promise<Page<typeof auditTrail.$inferSelect>> {
  return workspaceId === null
    ? readAll(db, {}, request)
    : readOfWorkspace(db, { workspaceId }, request);
}

const readChanges = prepareEntries(
  and(
    eq(auditTrail.webhookId, sql.placeholder("webhookId")),
    // A rejected call has changed nothing. A failed one may have.
    inArray(auditTrail.result, ["ok", "failed"]),
  ),
);

/** Reads one page of the changes of a subscription, newest first. */
export function listChanges(
  db: Database,
  webhookId: string,
  request: PageRequest,
): Promise<Page<typeof auditTrail.$inferSelect>> {
  return readChanges(db, { webhookId }, request);
}

/**
 * Whether this method of this actor has changed a subscription in the last hour, among its newest changes. A call that
 * continues a range then needs no entry of its own. Its cursor proves no earlier call, because anyone can write one.
 * False if the directory does not respond, so that a change is rather noted twice than not at all.
 */
export async function hasRecentChange(
  env: Env,
  { webhookId, method, actor }: { webhookId: string; method: string; actor: string | null },
  now: number,
): Promise<boolean> {
  const newest = await queryIfReachable(env, DIRECTORY, (db) =>
    listChanges(db, webhookId, { limit: PAGE_LIMIT.max, after: null }),
  );
  const isSame = (entry: typeof auditTrail.$inferSelect) =>
    entry.method === method && entry.actor === actor && entry.at > now - HOUR_MS;
  return newest?.items.some(isSame) ?? false;
}

/** Deletes entries past their retention, oldest first. */
export function deleteOldAuditEntries(now: number): Part {
  const { at, id } = auditTrail;
  return sql`DELETE FROM ${auditTrail} WHERE (${at}, ${id}) IN (SELECT ${at}, ${id} FROM ${auditTrail}
    WHERE ${at} < ${now - AUDIT_KEPT_DAYS * DAY_MS} ORDER BY ${at}, ${id} LIMIT ${CLEANUP_MAX})`;
}
