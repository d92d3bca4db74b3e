import { and, eq, type SQL, sql } from "drizzle-orm";
import { AUDIT_KEPT_DAYS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, type Database, type Executable } from "../db/client.ts";
import { isOnPage, type Listing, type PageRequest, preparePages } from "../db/page.ts";
import { auditTrail } from "../db/schema.ts";

/** A call of an operation, in the directory's audit trail. */
export type AuditEntry = typeof auditTrail.$inferSelect;

/** Inserts an entry; one that is there already stays as it is. */
export function insertAuditEntry(db: Database, entry: AuditEntry) {
  return db.insert(auditTrail).values(entry).onConflictDoNothing();
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
): Promise<Listing<AuditEntry>> {
  return workspaceId === null
    ? allPages(db, {}, request)
    : pagesOfOne(db, { workspaceId }, request);
}

/** Deletes entries that have been kept long enough, oldest first. */
export function forgetAuditEntries(now: number): Executable {
  const { at, id } = auditTrail;
  return sql`DELETE FROM ${auditTrail} WHERE (${at}, ${id}) IN (SELECT ${at}, ${id} FROM ${auditTrail}
    WHERE ${at} < ${now - AUDIT_KEPT_DAYS * DAY_MS} ORDER BY ${at}, ${id} LIMIT ${CLEANUP_MAX})`;
}
