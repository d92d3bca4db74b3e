import { and, eq, inArray, isNotNull, type SQL, sql } from "drizzle-orm";
import { AUDIT_KEPT_DAYS, PORTAL_CHANGES_KEPT } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import {
  CLEANUP_MAX,
  commit,
  counted,
  type Database,
  type Executable,
  type Statements,
} from "../db/client.ts";
import { isOnPage, type Listing, type PageRequest, preparePages } from "../db/page.ts";
import { auditTrail } from "../db/schema.ts";

/** A call of an operation, in the directory's audit trail. */
export type AuditEntry = typeof auditTrail.$inferInsert;

/** How a change came that was made in the portal. */
export const VIA_PORTAL = "portal";

/** Inserts an entry; one that is there already stays as it is. */
export async function insertAuditEntry(db: Database, entry: AuditEntry): Promise<void> {
  await commit(db, {
    inserted: qb.insert(auditTrail).values(entry).onConflictDoNothing(),
    pruned:
      entry.via === VIA_PORTAL && entry.workspaceId ? pruneChanges(entry.workspaceId) : undefined,
  });
}

/** Maximum entries that one insertion prunes. */
const PRUNED_MAX = 10;

/**
 * Deletes the oldest changes that a workspace made in its portal, beyond `PORTAL_CHANGES_KEPT`. Otherwise a
 * tenant could fill the database of all. The platform's own calls stay.
 */
function pruneChanges(workspaceId: string): Executable {
  const { at, id, via } = auditTrail;
  const isChange = and(eq(auditTrail.workspaceId, workspaceId), isNotNull(auditTrail.webhookId));
  return sql`DELETE FROM ${auditTrail} WHERE ${via} = ${VIA_PORTAL} AND (${at}, ${id}) IN (
    SELECT ${at}, ${id} FROM ${auditTrail} WHERE ${isChange}
    ORDER BY ${at} DESC, ${id} DESC LIMIT ${PRUNED_MAX} OFFSET ${PORTAL_CHANGES_KEPT})`;
}

/**
 * Empties the changes of an erased workspace, a chunk at a time, because URLs and descriptions may be personal.
 * The entries themselves stay. Reads how many entries it has cleared.
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

const ORDER = { at: auditTrail.at, id: auditTrail.id };
const pagesOf = (condition?: SQL) =>
  preparePages(
    ORDER,
    qb
      .select()
      .from(auditTrail)
      .where(and(condition, isOnPage(ORDER))),
  );
const allPages = pagesOf();
const pagesOfOne = pagesOf(eq(auditTrail.workspaceId, sql.placeholder("workspaceId")));

/** One page of the trail, newest first; of one workspace, or of all. */
export function listAuditEntries(
  db: Database,
  workspaceId: string | null,
  request: PageRequest,
): Promise<Listing<typeof auditTrail.$inferSelect>> {
  return workspaceId === null
    ? allPages(db, {}, request)
    : pagesOfOne(db, { workspaceId }, request);
}

const changes = pagesOf(
  and(
    eq(auditTrail.webhookId, sql.placeholder("webhookId")),
    // A call that was refused has changed nothing; one that failed may have.
    inArray(auditTrail.result, ["ok", "failed"]),
  ),
);

/** One page of the changes of a subscription, newest first. */
export function listChanges(
  db: Database,
  webhookId: string,
  request: PageRequest,
): Promise<Listing<typeof auditTrail.$inferSelect>> {
  return changes(db, { webhookId }, request);
}

/** Deletes entries that have been kept long enough, oldest first. */
export function forgetAuditEntries(now: number): Executable {
  const { at, id } = auditTrail;
  return sql`DELETE FROM ${auditTrail} WHERE (${at}, ${id}) IN (SELECT ${at}, ${id} FROM ${auditTrail}
    WHERE ${at} < ${now - AUDIT_KEPT_DAYS * DAY_MS} ORDER BY ${at}, ${id} LIMIT ${CLEANUP_MAX})`;
}
