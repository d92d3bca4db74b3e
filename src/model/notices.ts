import { eq, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/resources.ts";
import { commit, type Database, retrying, rows } from "../db/client.ts";
import { notices, workspaces } from "../db/schema.ts";

/** An e-mail owed to the administrators of a workspace. */
export interface OwedNotice {
  id: number;
  workspaceName: string;
  adminEmails: string[];
  subscriptionId: string;
  host: string;
  events: WebhookEvent[];
  failingSince: number;
  lastOutcome: string | null;
  lastStatus: number | null;
}

const AT_ONCE = 50;
const TRY_AGAIN_AFTER_MS = 300_000;

/**
 * Takes e-mails that are owed and due, the longest due first, so that nobody else sends them: what is
 * not marked as sent is due again in five minutes.
 */
export async function takeOwedNotices(db: Database, now: number): Promise<OwedNotice[]> {
  const taken = await commit(
    db,
    rows<{ id: number }>(
      sql`UPDATE ${notices} SET due_at = ${now + TRY_AGAIN_AFTER_MS}
        WHERE id IN (SELECT id FROM ${notices} WHERE sent_at IS NULL AND due_at <= ${now}
          ORDER BY due_at, id LIMIT ${AT_ONCE})
        RETURNING id`,
    ),
    1,
  );
  const ids = taken.map(({ id }) => id);
  if (ids.length === 0) return [];
  return retrying(() =>
    db
      .select({
        id: notices.id,
        workspaceName: workspaces.name,
        adminEmails: workspaces.adminEmails,
        subscriptionId: notices.subscriptionId,
        host: notices.host,
        events: notices.events,
        failingSince: notices.failingSince,
        lastOutcome: notices.lastOutcome,
        lastStatus: notices.lastStatus,
      })
      .from(notices)
      .innerJoin(workspaces, eq(workspaces.id, notices.workspaceId))
      .where(sql`${notices.id} IN (SELECT value FROM json_each(${JSON.stringify(ids)}))`)
      .orderBy(notices.id),
  );
}

/** Records that an e-mail was sent. */
export function markSent(db: Database, id: number, now: number) {
  return retrying(() => db.update(notices).set({ sentAt: now }).where(eq(notices.id, id)));
}
