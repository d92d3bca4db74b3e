import { eq, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/resources.ts";
import { type Database, retrying } from "../db/client.ts";
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

/** E-mails that are still owed, those that failed least first. */
export async function owedNotices(db: Database): Promise<OwedNotice[]> {
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
      .where(sql`sent_at IS NULL`)
      .orderBy(notices.failures, notices.id)
      .limit(AT_ONCE),
  );
}

/** Records that an e-mail was sent. */
export function markSent(db: Database, id: number, now: number) {
  return retrying(() => db.update(notices).set({ sentAt: now }).where(eq(notices.id, id)));
}

/** Records that an e-mail could not be sent; it stays owed. */
export function markFailed(db: Database, id: number) {
  return retrying(() =>
    db
      .update(notices)
      .set({ failures: sql`${notices.failures} + 1` })
      .where(eq(notices.id, id)),
  );
}
