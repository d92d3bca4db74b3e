import { and, eq, inArray, isNull, lte, type SQL, sql } from "drizzle-orm";
import { EMAIL_TAKEN_MS, EMAILS_MAX } from "../contract/limits.ts";
import { insertFrom, select, update } from "../db/builder.ts";
import { commit, type Database, inOrder, readAs } from "../db/client.ts";
import { type EmailState, emails, notices, subscriptions, workspaces } from "../db/schema.ts";
import { IS_OWED } from "./holds.ts";

type NoticeRow = typeof notices.$inferSelect;

/** What is told of a subscription; times are Unix milliseconds. */
export interface Notice
  extends Pick<
    NoticeRow,
    "kind" | "subscriptionId" | "host" | "events" | "failingSince" | "lastOutcome" | "lastStatus"
  > {
  workspaceName: string;
}

/** An e-mail to one administrator that is to be sent now; `tries` is the number of this try, from 1. */
export interface OwedEmail
  extends Notice,
    Pick<typeof emails.$inferSelect, "noticeId" | "recipient" | "tries"> {}

/** Notices that one transaction addresses. */
const ADDRESSED_AT_ONCE = 50;

/** True in SQL where the subscription of the notice fails still, in the same stretch. */
const IS_STILL_FAILING = sql`EXISTS (
  SELECT 1 FROM ${subscriptions}
  WHERE ${subscriptions.id} = ${notices.subscriptionId}
    AND ${subscriptions.failingSince} = ${notices.failingSince} AND ${IS_OWED})`;

/**
 * Addresses the notices that are due, drops the e-mails that no longer hold, and takes those that are
 * to be sent, the longest due first, so that nobody else sends them. A try is counted before it is
 * made: what is not settled is due again in `EMAIL_TAKEN_MS`.
 */
export async function takeOwedEmails(db: Database, now: number): Promise<OwedEmail[]> {
  const due = select({ id: notices.id })
    .from(notices)
    .where(and(isNull(notices.sentAt), lte(notices.dueAt, now)))
    .orderBy(notices.dueAt, notices.id)
    .limit(ADDRESSED_AT_ONCE);
  const statements = inOrder([
    insertFrom(
      emails,
      { noticeId: notices.id, recipient: sql`a.value`, dueAt: now },
      sql`FROM ${notices} JOIN ${workspaces} ON ${workspaces.id} = ${notices.workspaceId}
            JOIN json_each(${workspaces.adminEmails}) AS a
          WHERE ${inArray(notices.id, due)}
          ON CONFLICT DO NOTHING`,
    ),
    update(notices).set({ sentAt: now }).where(inArray(notices.id, due)),
    update(emails)
      .set({ state: "dropped", settledAt: now })
      .where(
        sql`${emails.state} = 'owed' AND ${emails.dueAt} <= ${now} AND EXISTS (
            SELECT 1 FROM ${notices}
            WHERE ${notices.id} = ${emails.noticeId} AND ${notices.kind} = 'failing' AND NOT ${IS_STILL_FAILING})`,
      ),
    select({
      noticeId: emails.noticeId,
      recipient: emails.recipient,
      tries: sql<number>`${emails.tries} + 1`,
      kind: notices.kind,
      workspaceName: workspaces.name,
      subscriptionId: notices.subscriptionId,
      host: notices.host,
      events: notices.events,
      failingSince: notices.failingSince,
      lastOutcome: notices.lastOutcome,
      lastStatus: notices.lastStatus,
    })
      .from(emails)
      .innerJoin(notices, eq(notices.id, emails.noticeId))
      .innerJoin(workspaces, eq(workspaces.id, notices.workspaceId))
      .where(isNext(now))
      .orderBy(emails.dueAt, emails.noticeId, emails.recipient),
    update(emails)
      .set({ dueAt: now + EMAIL_TAKEN_MS, tries: sql`${emails.tries} + 1` })
      .where(isNext(now)),
  ]);
  const owed = readAs(statements, ([, , , found]) => found);
  // Not retried: if the reply was lost, a second try would not give what the first has taken.
  return commit(db, owed, 1);
}

/** True in SQL for those of the e-mails that are sent next. */
function isNext(now: number): SQL {
  const { noticeId, recipient, state, dueAt } = emails;
  return sql`(${noticeId}, ${recipient}) IN (
    SELECT ${noticeId}, ${recipient} FROM ${emails} WHERE ${state} = 'owed' AND ${dueAt} <= ${now}
    ORDER BY ${dueAt}, ${noticeId}, ${recipient} LIMIT ${EMAILS_MAX})`;
}

function isOwedTo({ noticeId, recipient }: OwedEmail) {
  return and(
    eq(emails.noticeId, noticeId),
    eq(emails.recipient, recipient),
    eq(emails.state, "owed"),
  );
}

/** Records what has become of an e-mail for good. */
export function settleEmail(db: Database, email: OwedEmail, state: EmailState, now: number) {
  return commit(db, update(emails).set({ state, settledAt: now }).where(isOwedTo(email)));
}

/** Puts an e-mail off until its next try. */
export function postponeEmail(db: Database, email: OwedEmail, dueAt: number) {
  return commit(
    db,
    update(emails)
      .set({ dueAt })
      .where(and(isOwedTo(email), eq(emails.tries, email.tries))),
  );
}

/** Gives back e-mails that were taken and not tried: the try does not count. */
export function giveBackEmails(db: Database, taken: OwedEmail[], now: number) {
  const keys = taken.map(({ noticeId, recipient, tries }) => ({ noticeId, recipient, tries }));
  return commit(
    db,
    update(emails)
      .set({ dueAt: now, tries: sql`${emails.tries} - 1` })
      .from(sql`json_each(${JSON.stringify(keys)}) AS t`)
      .where(
        sql`${emails.noticeId} = t.value->>'noticeId' AND ${emails.recipient} = t.value->>'recipient'
            AND ${emails.tries} = t.value->>'tries' AND ${emails.state} = 'owed'`,
      ),
  );
}
