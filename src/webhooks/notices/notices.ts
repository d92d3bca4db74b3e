import { and, eq, inArray, isNull, lte, type SQL, sql } from "drizzle-orm";
import { insertFrom, qb } from "../../db/builder.ts";
import {
  commit,
  counted,
  type Database,
  inOrder,
  readAs,
  type Statements,
} from "../../db/client.ts";
import { type EmailState, emails, notices, subscriptions, workspaces } from "../../db/schema.ts";
import { isWritable } from "../../workspaces/moves.ts";
import { IS_ACTIVE } from "../conditions.ts";

/** How long an e-mail taken by a sweep is reserved; a sweep ends well before that. */
export const EMAIL_TAKEN_MS = 300_000;
/** Maximum e-mails per sweep, which has other work: each waits for a mail server. */
export const EMAILS_MAX = 20;

type NoticeRow = typeof notices.$inferSelect;

const { kind, subscriptionId, host, events, failingSince, lastOutcome, lastStatus } = notices;
const SHOWN = { kind, subscriptionId, host, events, failingSince, lastOutcome, lastStatus };

/** What an administrator is told about a subscription; times are Unix milliseconds. */
export interface Notice extends Pick<NoticeRow, keyof typeof SHOWN> {
  workspaceName: string;
}

/** An e-mail to send to one administrator now; `tries` is the number of this try, from 1. */
export interface DueEmail
  extends Notice,
    Pick<NoticeRow, "workspaceId">,
    Pick<typeof emails.$inferSelect, "noticeId" | "recipient" | "tries"> {
  /** When its notice was addressed. */
  addressedAt: number;
}

/** Notices processed in one transaction. */
const ADDRESSED_AT_ONCE = 50;

/** SQL condition: the notice's subscription is still failing, in the same series of failures. */
const IS_STILL_FAILING = sql`EXISTS (
  SELECT 1 FROM ${subscriptions}
  WHERE ${subscriptions.id} = ${notices.subscriptionId}
    AND ${subscriptions.failingSince} = ${notices.failingSince} AND ${IS_ACTIVE})`;

/**
 * Creates the e-mails of the notices that are due, drops those that are no longer true, and takes
 * those to send, longest due first, so that nobody else sends them. The try is counted before it is
 * made: an e-mail that is not settled is due again in `EMAIL_TAKEN_MS`.
 */
export async function takeDueEmails(db: Database, now: number): Promise<DueEmail[]> {
  const due = qb
    .select({ id: notices.id })
    .from(notices)
    .where(and(isNull(notices.sentAt), lte(notices.dueAt, now), isWritable(notices.workspaceId)))
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
    qb.update(notices).set({ sentAt: now }).where(inArray(notices.id, due)),
    qb
      .update(emails)
      .set({ state: "dropped", settledAt: now })
      .where(
        sql`${emails.state} = 'owed' AND ${emails.dueAt} <= ${now} AND EXISTS (
            SELECT 1 FROM ${notices}
            WHERE ${notices.id} = ${emails.noticeId} AND ${notices.kind} = 'failing'
              AND NOT ${IS_STILL_FAILING} AND ${isWritable(notices.workspaceId)})`,
      ),
    qb
      .select({
        noticeId: emails.noticeId,
        recipient: emails.recipient,
        tries: sql<number>`${emails.tries} + 1`,
        workspaceId: notices.workspaceId,
        workspaceName: workspaces.name,
        addressedAt: sql<number>`${notices.sentAt}`,
        ...SHOWN,
      })
      .from(emails)
      .innerJoin(notices, eq(notices.id, emails.noticeId))
      .innerJoin(workspaces, eq(workspaces.id, notices.workspaceId))
      .where(isNext(now))
      .orderBy(emails.dueAt, emails.noticeId, emails.recipient),
    qb
      .update(emails)
      .set({ dueAt: now + EMAIL_TAKEN_MS, tries: sql`${emails.tries} + 1` })
      .where(isNext(now)),
  ]);
  // If the reply is lost, the second try takes others: these are due again in `EMAIL_TAKEN_MS`.
  return commit(
    db,
    readAs(statements, ([, , , found]) => found),
  );
}

/** SQL condition: the e-mail is among the next to send. */
function isNext(now: number): SQL {
  const { noticeId, recipient, state, dueAt } = emails;
  return sql`(${noticeId}, ${recipient}) IN (
    SELECT ${noticeId}, ${recipient} FROM ${emails} JOIN ${notices} ON ${notices.id} = ${noticeId}
    WHERE ${state} = 'owed' AND ${dueAt} <= ${now} AND ${isWritable(notices.workspaceId)}
    ORDER BY ${dueAt}, ${noticeId}, ${recipient} LIMIT ${EMAILS_MAX})`;
}

/**
 * Readdresses the e-mails that a workspace is still owed. Former administrators get no more of them; new
 * ones get each notice that at least one administrator has not been sent yet.
 */
export function readdress(
  workspaceId: string,
  adminEmails: string[],
  now: number,
): Statements<unknown> {
  const isOwed = sql`${emails.state} = 'owed' AND EXISTS (SELECT 1 FROM ${notices}
    WHERE ${notices.id} = ${emails.noticeId} AND ${notices.workspaceId} = ${workspaceId})`;
  const admins = sql`json_each(${JSON.stringify(adminEmails)}) AS a`;
  return inOrder([
    insertFrom(
      emails,
      { noticeId: sql`o.notice_id`, recipient: sql`a.value`, dueAt: now },
      sql`FROM (SELECT DISTINCT ${emails.noticeId} AS notice_id FROM ${emails} WHERE ${isOwed}) AS o
          JOIN ${admins} WHERE true ON CONFLICT DO NOTHING`,
    ),
    qb
      .update(emails)
      .set({ state: "dropped", settledAt: now })
      .where(sql`${isOwed} AND ${emails.recipient} NOT IN (SELECT a.value FROM ${admins})`),
  ]);
}

/**
 * SQL condition: the e-mail, if it is owed. It is not identified by its notice's number, which differs
 * between databases.
 */
function isOwedTo(email: DueEmail) {
  const { workspaceId, subscriptionId, failingSince, kind, recipient } = email;
  const notice = qb
    .select({ id: notices.id })
    .from(notices)
    .where(
      and(
        eq(notices.workspaceId, workspaceId),
        eq(notices.subscriptionId, subscriptionId),
        eq(notices.failingSince, failingSince),
        eq(notices.kind, kind),
      ),
    );
  return and(
    inArray(emails.noticeId, notice),
    eq(emails.recipient, recipient),
    eq(emails.state, "owed"),
  );
}

/** Records the final state of an e-mail. Reads 0 if it is not owed here. */
export function settleEmail(email: DueEmail, state: EmailState, now: number): Statements<number> {
  return counted(qb.update(emails).set({ state, settledAt: now }).where(isOwedTo(email)));
}

/** Postpones an e-mail to its next try. Reads 0 if it is not owed here. */
export function postponeEmail(email: DueEmail, dueAt: number): Statements<number> {
  const isThisTry = and(isOwedTo(email), eq(emails.tries, email.tries));
  return counted(qb.update(emails).set({ dueAt }).where(isThisTry));
}

/**
 * Returns e-mails that were taken but not tried: the try does not count, unless their workspace has
 * since left this database, or is about to.
 */
export function giveBackEmails(db: Database, taken: DueEmail[], now: number) {
  const keys = taken.map(({ noticeId, recipient, tries }) => ({ noticeId, recipient, tries }));
  return commit(
    db,
    qb
      .update(emails)
      .set({ dueAt: now, tries: sql`${emails.tries} - 1` })
      .from(sql`json_each(${JSON.stringify(keys)}) AS t`)
      .where(
        sql`${emails.noticeId} = t.value->>'noticeId' AND ${emails.recipient} = t.value->>'recipient'
            AND ${emails.tries} = t.value->>'tries' AND ${emails.state} = 'owed'
            AND EXISTS (SELECT 1 FROM ${notices} WHERE ${notices.id} = ${emails.noticeId}
              AND ${isWritable(notices.workspaceId)})`,
      ),
  );
}
