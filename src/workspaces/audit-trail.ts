import { and, type Column, desc, eq, inArray, isNotNull, type SQL, sql } from "drizzle-orm";
import { AUDIT_KEPT_DAYS, KEY_CHANGES_PER_DAY, PORTAL_CHANGES_KEPT } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { type Assigned, insertFrom, qb } from "../db/builder.ts";
import { commit, counted, type Database, type Part, type Statements } from "../db/client.ts";
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
  const { workspaceId, via } = entry;
  const { webhookId, before, after } = auditTrail;
  const isErased = sql`NOT EXISTS (SELECT 1 FROM ${workspaces}
    WHERE ${workspaces.id} = ${workspaceId} AND NOT ${workspaces.erasing})`;
  const unlessErased = (column: Column, value: unknown) =>
    sql`iif(${isErased}, NULL, ${sql.param(value ?? null, column)})`;
  const stored = {
    ...entry,
    webhookId: unlessErased(webhookId, entry.webhookId),
    before: unlessErased(before, entry.before),
    after: unlessErased(after, entry.after),
  };
  if (workspaceId && via.startsWith(VIA_API)) return insertOfKey(db, workspaceId, entry, stored);
  await commit(db, {
    inserted: insertIf(sql`true`, stored),
    pruned: workspaceId && via === VIA_PORTAL ? pruneChanges(workspaceId) : undefined,
  });
}

function insertIf(condition: SQL, entry: Assigned<typeof auditTrail>) {
  return insertFrom(auditTrail, entry, sql`WHERE ${condition}`).onConflictDoNothing();
}

/**
 * Inserts the entry of a change with an API key, up to `KEY_CHANGES_PER_DAY`. Beyond that, one entry of the day says that
 * there were more. A person who has stolen the key cannot push out an entry, and cannot hide the attempt.
 */
async function insertOfKey(
  db: Database,
  workspaceId: string,
  entry: AuditEntry,
  stored: Assigned<typeof auditTrail>,
): Promise<void> {
  const { at, id } = auditTrail;
  const day = entry.at - (entry.at % DAY_MS);
  const earlier = sql`${auditTrail} WHERE ${isChangeOf(workspaceId, entry.via, true)}
    AND ${at} BETWEEN ${day} AND ${day + DAY_MS - 1}`;
  const isFull = sql`(SELECT count(*) FROM ${earlier}) >= ${KEY_CHANGES_PER_DAY}`;
  // If the reply to the last insertion was lost, its second try finds the entry.
  const isStored = sql`EXISTS (SELECT 1 FROM ${earlier} AND ${eq(id, entry.id)})`;
  const omission = {
    ...entry,
    at: sql`(SELECT max(${at}) FROM ${earlier})`,
    id: `omitted ${entry.via}`,
    method: "omitChanges",
    ids: [],
    webhookId: null,
    before: null,
    after: null,
    result: "ok",
  };
  await commit(db, {
    inserted: insertIf(sql`NOT ${isFull}`, stored),
    omitted: insertIf(sql`${isFull} AND NOT ${isStored}`, omission),
  });
}

/** Maximum entries that one insertion prunes. */
const PRUNED_MAX = 10;

/**
 * Deletes the oldest changes that a workspace made in its portal, beyond `PORTAL_CHANGES_KEPT`. Otherwise, a tenant could
 * fill the database that it shares with others. Lasting changes stay, because `findLastingWait` bounds them.
 */
function pruneChanges(workspaceId: string): Part {
  const { at, id } = auditTrail;
  return sql`DELETE FROM ${auditTrail} WHERE (${at}, ${id}) IN (
    SELECT ${at}, ${id} FROM ${auditTrail} WHERE ${isChangeOf(workspaceId, VIA_PORTAL, false)}
    ORDER BY ${at} DESC, ${id} DESC LIMIT ${PRUNED_MAX} OFFSET ${PORTAL_CHANGES_KEPT})`;
}

/** SQL condition: the entry is a change of a subscription of the workspace that was made there, and lasting or not. */
function isChangeOf(workspaceId: string, via: string, lasting: boolean): SQL | undefined {
  return and(
    eq(auditTrail.workspaceId, workspaceId),
    eq(auditTrail.via, via),
    eq(auditTrail.lasting, lasting),
    isNotNull(auditTrail.webhookId),
  );
}

/**
 * Whether a change is about a URL, a secret or a header. A person who has stolen a session or an API key changes these,
 * and must not be able to remove the entries.
 */
export function isLasting({ method, before, after }: Partial<AuditEntry>): boolean {
  const changed = { ...before, ...after };
  return (
    method === "deleteWebhook" ||
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
      .where(isChangeOf(workspaceId, VIA_PORTAL, true))
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
    // A client of another workspace may have tried to delete it. The `+` leaves the choice of the index to the other column.
    sql`+${auditTrail.workspaceId} = ${sql.placeholder("workspaceId")}`,
    inArray(auditTrail.result, MAY_HAVE_HAPPENED),
  ),
);

/** Reads one page of the changes of a workspace's subscription, newest first. */
export function listChanges(
  db: Database,
  workspaceId: string,
  webhookId: string,
  request: PageRequest,
): Promise<Page<typeof auditTrail.$inferSelect>> {
  return readChanges(db, { workspaceId, webhookId }, request);
}

/** Deletes entries past their retention, oldest first. */
export function deleteOldAuditEntries(now: number): Part {
  const { at, id } = auditTrail;
  return sql`DELETE FROM ${auditTrail} WHERE (${at}, ${id}) IN (SELECT ${at}, ${id} FROM ${auditTrail}
    WHERE ${at} < ${now - AUDIT_KEPT_DAYS * DAY_MS} ORDER BY ${at}, ${id} LIMIT ${CLEANUP_MAX})`;
}
