import { and, type Column, desc, eq, inArray, isNotNull, type SQL, sql } from "drizzle-orm";
import { AUDIT_KEPT_DAYS, PORTAL_CHANGES_KEPT } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
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
import { auditTrail, IN_HISTORY, workspaces } from "../db/schema.ts";
import { queryIfReachable } from "./placement.ts";

/** An entry of the audit trail, which is in the directory. */
export type AuditEntry = typeof auditTrail.$inferInsert;

/** The `via` of changes that were made in the portal. */
export const VIA_PORTAL = "portal";
/** The beginning of the `via` of changes that an API key has made; its id follows. */
export const VIA_API = "api:";

/**
 * Inserts an entry, unless it is stored already. If its workspace is erased, or about to be, the entry has no change,
 * because `clearChanges` may have cleared the others already.
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
      entry.workspaceId && isOfTenant(entry.via) ? pruneChanges(entry.workspaceId) : undefined,
  });
}

/** Whether an entry is about a change that a workspace made in its portal or with its API keys. */
function isOfTenant(via: string): boolean {
  return via === VIA_PORTAL || via.startsWith(VIA_API);
}

/** Maximum entries that one insertion prunes. */
const PRUNED_MAX = 10;

/**
 * Deletes the oldest changes that a workspace made in its portal or with its API keys, beyond `PORTAL_CHANGES_KEPT`.
 * Otherwise, a tenant could fill the database that it shares with others. Calls of the platform stay, and so do changes
 * of URLs, secrets and headers in the portal, which `findLastingWait` bounds.
 */
function pruneChanges(workspaceId: string): Part {
  const { at, id, via } = auditTrail;
  const isChange = isChangeOf(workspaceId, false);
  const isTenants = sql`(${via} = ${VIA_PORTAL} OR ${via} GLOB ${`${VIA_API}*`})`;
  return sql`DELETE FROM ${auditTrail} WHERE ${isTenants} AND (${at}, ${id}) IN (
    SELECT ${at}, ${id} FROM ${auditTrail} WHERE ${isChange}
    ORDER BY ${at} DESC, ${id} DESC LIMIT ${PRUNED_MAX} OFFSET ${PORTAL_CHANGES_KEPT})`;
}

/** SQL condition: the entry is a change of a subscription of the workspace, and lasting or not. */
function isChangeOf(workspaceId: string, lasting: boolean): SQL | undefined {
  return and(
    eq(auditTrail.workspaceId, workspaceId),
    eq(auditTrail.lasting, lasting),
    isNotNull(auditTrail.webhookId),
  );
}

/**
 * Whether a change is about a URL, a secret or a header. A person who has stolen a session changes these, and must not
 * be able to remove the entries.
 */
export function isLasting({ method, before, after }: Partial<AuditEntry>): boolean {
  const changed = { ...before, ...after };
  return (
    method === "endSecretOverlap" ||
    "url" in changed ||
    "headers" in changed ||
    "rotatedAt" in changed
  );
}

/**
 * Finds how long a workspace must wait until it may make another lasting change in its portal, in seconds; 0 if it need
 * not. Changes that are under way at the same time may exceed the maximum.
 *
 * @param max maximum lasting changes in a day.
 */
export async function findLastingWait(
  env: Env,
  workspaceId: string,
  max: number,
  now: number,
): Promise<number> {
  const { at, id } = auditTrail;
  const found = await queryIfReachable(env, DIRECTORY, (db) =>
    db
      .select({ at })
      .from(auditTrail)
      .where(isChangeOf(workspaceId, true))
      .orderBy(desc(at), desc(id))
      .limit(1)
      .offset(max - 1),
  );
  const [first] = found ?? [];
  return first ? Math.max(0, Math.ceil((first.at + DAY_MS - now) / 1000)) : 0;
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

/** The results of calls that have changed something, or may have. A rejected call has not. */
const MAY_HAVE_HAPPENED = ["ok", "failed"];

const ENTRY_ORDER = { at: auditTrail.at, id: auditTrail.id };
const prepareEntries = (condition?: SQL) =>
  preparePage({
    order: ENTRY_ORDER,
    select: qb
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

const readHistory = prepareEntries(
  and(
    eq(auditTrail.workspaceId, sql.placeholder("workspaceId")),
    IN_HISTORY,
    inArray(auditTrail.result, MAY_HAVE_HAPPENED),
  ),
);

/** Reads one page of the history of a workspace, newest first: what the index `audit_trail_history` has. */
export function listHistory(
  db: Database,
  workspaceId: string,
  request: PageRequest,
): Promise<Page<typeof auditTrail.$inferSelect>> {
  return readHistory(db, { workspaceId }, request);
}

const readChanges = prepareEntries(
  and(
    eq(auditTrail.webhookId, sql.placeholder("webhookId")),
    inArray(auditTrail.result, MAY_HAVE_HAPPENED),
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

/** Deletes entries past their retention, oldest first. */
export function deleteOldAuditEntries(now: number): Part {
  const { at, id } = auditTrail;
  return sql`DELETE FROM ${auditTrail} WHERE (${at}, ${id}) IN (SELECT ${at}, ${id} FROM ${auditTrail}
    WHERE ${at} < ${now - AUDIT_KEPT_DAYS * DAY_MS} ORDER BY ${at}, ${id} LIMIT ${CLEANUP_MAX})`;
}
