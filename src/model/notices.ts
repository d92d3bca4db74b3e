import { type SQL, sql } from "drizzle-orm";
import { EMAIL_TAKEN_MS, EMAILS_MAX } from "../contract/limits.ts";
import type { WebhookEvent } from "../contract/resources.ts";
import { commit, type Database, inOrder, readAs, rows, write } from "../db/client.ts";
import {
  type EmailState,
  emails,
  type NoticeKind,
  notices,
  subscriptions,
  workspaces,
} from "../db/schema.ts";

/** What is told of a subscription. */
export interface Notice {
  kind: NoticeKind;
  workspaceName: string;
  subscriptionId: string;
  host: string;
  events: WebhookEvent[];
  /** Unix milliseconds. */
  failingSince: number;
  lastOutcome: string | null;
  lastStatus: number | null;
}

/** An e-mail to one administrator that is to be sent now. */
export interface OwedEmail extends Notice {
  noticeId: number;
  recipient: string;
  /** The number of this try, from 1. */
  tries: number;
}

/** Notices that one transaction addresses. */
const ADDRESSED_AT_ONCE = 50;

/** True in SQL where the subscription of the notice `n` fails still, in the same stretch. */
const IS_STILL_FAILING = sql`EXISTS (
  SELECT 1 FROM ${subscriptions} AS s JOIN ${workspaces} AS w ON w.id = s.workspace_id
  WHERE s.id = n.subscription_id AND s.failing_since = n.failing_since
    AND s.disabled_at IS NULL AND s.deleted_at IS NULL AND w.access_granted)`;

/**
 * Addresses the notices that are due, drops the e-mails that no longer hold, and takes those that are
 * to be sent, the longest due first, so that nobody else sends them. A try is counted before it is
 * made: what is not settled is due again in `EMAIL_TAKEN_MS`.
 */
export async function takeOwedEmails(db: Database, now: number): Promise<OwedEmail[]> {
  const due = sql`(SELECT id FROM ${notices} WHERE sent_at IS NULL AND due_at <= ${now}
    ORDER BY due_at, id LIMIT ${ADDRESSED_AT_ONCE})`;
  const takenUntil = now + EMAIL_TAKEN_MS;
  const statements = inOrder([
    write(sql`
      INSERT INTO ${emails} (notice_id, recipient, due_at)
      SELECT n.id, a.value, ${now}
      FROM ${notices} AS n JOIN ${workspaces} AS w ON w.id = n.workspace_id
        JOIN json_each(w.admin_emails) AS a
      WHERE n.id IN ${due}
      ON CONFLICT DO NOTHING`),
    write(sql`UPDATE ${notices} SET sent_at = ${now} WHERE id IN ${due}`),
    write(sql`
      UPDATE ${emails} SET state = 'dropped', settled_at = ${now}
      WHERE state = 'owed' AND due_at <= ${now} AND EXISTS (
        SELECT 1 FROM ${notices} AS n
        WHERE n.id = notice_id AND n.kind = 'failing' AND NOT ${IS_STILL_FAILING})`),
    rows<Omit<OwedEmail, "events"> & { events: string }>(sql`
      SELECT e.notice_id AS noticeId, e.recipient AS recipient, e.tries + 1 AS tries, n.kind AS kind,
        w.name AS workspaceName, n.subscription_id AS subscriptionId, n.host AS host,
        n.events AS events, n.failing_since AS failingSince, n.last_outcome AS lastOutcome,
        n.last_status AS lastStatus
      FROM ${emails} AS e JOIN ${notices} AS n ON n.id = e.notice_id
        JOIN ${workspaces} AS w ON w.id = n.workspace_id
      WHERE ${isNext(now)} ORDER BY e.due_at, e.notice_id, e.recipient`),
    write(
      sql`UPDATE ${emails} AS e SET due_at = ${takenUntil}, tries = tries + 1 WHERE ${isNext(now)}`,
    ),
  ]);
  const owed = readAs(statements, ([, , , found]) =>
    found.map((row) => ({ ...row, events: JSON.parse(row.events) as WebhookEvent[] })),
  );
  // Not retried: if the reply was lost, a second try would not give what the first has taken.
  return commit(db, owed, 1);
}

/** True in SQL for those of the e-mails `e` that are sent next. */
function isNext(now: number): SQL {
  return sql`(e.notice_id, e.recipient) IN (
    SELECT notice_id, recipient FROM ${emails} WHERE state = 'owed' AND due_at <= ${now}
    ORDER BY due_at, notice_id, recipient LIMIT ${EMAILS_MAX})`;
}

/** Records what has become of an e-mail for good. */
export function settleEmail(
  db: Database,
  { noticeId, recipient }: OwedEmail,
  state: EmailState,
  now: number,
) {
  return commit(
    db,
    write(sql`UPDATE ${emails} SET state = ${state}, settled_at = ${now}
      WHERE notice_id = ${noticeId} AND recipient = ${recipient} AND state = 'owed'`),
  );
}

/** Puts an e-mail off until its next try. */
export function postponeEmail(
  db: Database,
  { noticeId, recipient, tries }: OwedEmail,
  dueAt: number,
) {
  return commit(
    db,
    write(sql`UPDATE ${emails} SET due_at = ${dueAt}
      WHERE notice_id = ${noticeId} AND recipient = ${recipient} AND tries = ${tries}
        AND state = 'owed'`),
  );
}

/** Gives back e-mails that were taken and not tried: the try does not count. */
export function giveBackEmails(db: Database, taken: OwedEmail[], now: number) {
  const keys = taken.map(({ noticeId, recipient, tries }) => ({ noticeId, recipient, tries }));
  return commit(
    db,
    write(sql`UPDATE ${emails} AS e SET due_at = ${now}, tries = e.tries - 1
      FROM json_each(${JSON.stringify(keys)}) AS t
      WHERE e.notice_id = t.value->>'noticeId' AND e.recipient = t.value->>'recipient'
        AND e.tries = t.value->>'tries' AND e.state = 'owed'`),
  );
}
