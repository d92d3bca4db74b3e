import { and, eq, isNotNull, isNull, type SQL, sql } from "drizzle-orm";
import { TELL_AFTER_MS, WORKSPACE_EMAILS_PER_DAY } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { commit, type Database, prepared } from "../db/client.ts";
import { notices, subscriptions, workspaces } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";

/** How long a notice that a sweep takes is reserved; a sweep ends well before that. */
export const NOTICE_TAKEN_MS = 300_000;
/** Maximum workspaces that get a turn in one sweep. */
const TURNS_MAX = 20;
/** Maximum notices among which a sweep chooses those whose turn it is. */
const CHOSEN_FROM = 1_000;

const NOW = sql.placeholder("now");
const SENT_IN_A_DAY = (workspaceId: SQL) =>
  sql`(SELECT coalesce(sum(t.sent), 0) FROM ${notices} AS t
    WHERE t.workspace_id = ${workspaceId} AND t.sent_at > ${NOW} - ${DAY_MS})`;

/**
 * SQL condition: it is the turn of the notice. Each workspace has one turn per sweep, for its notice that
 * has been due the longest; first come those that were sent the fewest e-mails.
 */
const IS_NEXT = sql`(${notices.workspaceId}, ${notices.subscriptionId}, ${notices.since}, ${notices.kind}) IN (
    SELECT workspace_id, subscription_id, since, kind FROM (
      SELECT *, row_number() OVER (PARTITION BY workspace_id ORDER BY due_at) AS turn FROM (
        SELECT * FROM ${notices} WHERE ${notices.dueAt} <= ${NOW} AND ${isWritable(notices.workspaceId)}
        ORDER BY ${notices.dueAt} LIMIT ${CHOSEN_FROM})) AS d
    WHERE turn = 1 AND ${SENT_IN_A_DAY(sql`d.workspace_id`)} < ${WORKSPACE_EMAILS_PER_DAY}
    ORDER BY ${SENT_IN_A_DAY(sql`d.workspace_id`)}, due_at LIMIT ${TURNS_MAX})`;

const { url, events, failingSince, rejections, disabledAt, deletedAt, lastAttempt } = subscriptions;
const ABOUT = { url, events, failingSince, rejections, disabledAt, lastAttempt };
const REJECTED_SINCE = sql`r.value->>'since'`;

/** The notices about kinds of events that subscriptions have rejected for a day although others succeed. */
const insertRejecting = prepared(
  insertFrom(
    notices,
    {
      workspaceId: subscriptions.workspaceId,
      subscriptionId: subscriptions.id,
      since: REJECTED_SINCE,
      kind: "rejecting",
      dueAt: NOW,
    },
    sql`FROM ${subscriptions} JOIN json_each(${rejections}) AS r
      WHERE ${rejections} <> '{}' AND ${REJECTED_SINCE} <= ${NOW} - ${TELL_AFTER_MS}
        AND (${failingSince} IS NULL OR ${failingSince} > ${REJECTED_SINCE})
        AND ${disabledAt} IS NULL AND ${deletedAt} IS NULL AND ${isWritable(subscriptions.workspaceId)}
      ON CONFLICT DO NOTHING`,
  ),
);

const RECIPIENTS = sql`coalesce(${notices.recipients}, (SELECT ${workspaces.adminEmails}
    FROM ${workspaces} WHERE ${workspaces.id} = ${notices.workspaceId}))`;

const findNext = prepared(
  qb
    .select({
      workspaceId: notices.workspaceId,
      subscriptionId: notices.subscriptionId,
      since: notices.since,
      kind: notices.kind,
      recipients: RECIPIENTS.mapWith(notices.recipients).as("left_recipients"),
      tries: notices.tries,
      reminders: notices.reminders,
      sentInADay: SENT_IN_A_DAY(sql`${notices.workspaceId}`).mapWith(Number).as("in_a_day"),
      workspaceName: workspaces.name,
      accessGranted: workspaces.accessGranted,
      subscription: { ...ABOUT },
    })
    .from(notices)
    .innerJoin(workspaces, eq(workspaces.id, notices.workspaceId))
    .leftJoin(
      subscriptions,
      and(eq(subscriptions.id, notices.subscriptionId), isNull(subscriptions.deletedAt)),
    )
    .where(IS_NEXT),
);

const reserveNext = prepared(
  qb
    .update(notices)
    .set({ recipients: RECIPIENTS, dueAt: sql`${sql.placeholder("takenUntil")}` })
    .where(IS_NEXT),
);

/** A notice whose turn it is, with what it is about as it is now: null if the subscription is gone. */
export type DueNotice = Awaited<ReturnType<typeof takeDueNotices>>[number];

/**
 * Takes the notices whose turn it is, addressed to the workspace's administrators. Nobody else sends them
 * until `takenUntil`; if the reply is lost, the second try takes others.
 */
export async function takeDueNotices(db: Database, now: number) {
  const takenUntil = now + NOTICE_TAKEN_MS;
  const { taken } = await commit(db, {
    rejecting: insertRejecting({ now }),
    taken: findNext({ now }),
    reserved: reserveNext({ now, takenUntil }),
  });
  return taken.map((notice) => ({ ...notice, takenUntil }));
}

/** What a sweep records about a notice that it took. */
export interface Turn {
  /** Recipients who have the e-mail. */
  sent: string[];
  /** Those who could not be reached: they come last the next time. */
  failed: string[];
  /** The notice from now on; null if it stays as it is. */
  next: { dueAt: number | null; recipients?: null | []; reminders?: number; tries: number };
}

/** Records a turn, if the notice is still taken by this sweep. */
export function recordTurn(
  { workspaceId, subscriptionId, since, kind, takenUntil }: DueNotice,
  { sent, failed, next }: Turn,
  now: number,
) {
  const among = (addresses: string[]) =>
    sql`value IN (SELECT value FROM json_each(${JSON.stringify(addresses)}))`;
  const left = sql`(SELECT json_group_array(value) FROM (
    SELECT value FROM json_each(${notices.recipients}) WHERE NOT ${among(sent)} ORDER BY ${among(failed)}, key))`;
  const sentBefore = sql`iif(${notices.sentAt} > ${now - DAY_MS}, ${notices.sent}, 0)`;
  return qb
    .update(notices)
    .set({
      recipients: left,
      ...next,
      ...(sent.length > 0 && { sentAt: now, sent: sql`${sentBefore} + ${sent.length}` }),
    })
    .where(
      and(
        eq(notices.workspaceId, workspaceId),
        eq(notices.subscriptionId, subscriptionId),
        eq(notices.since, since),
        eq(notices.kind, kind),
        eq(notices.dueAt, takenUntil),
      ),
    );
}

/**
 * Changes who gets the notices that a workspace is still owed. Former administrators are forgotten; new
 * ones are told of what at least one other has not been sent yet. Comes before the workspace's own update.
 */
export function updateRecipients(workspaceId: string, adminEmails: string[]) {
  const { recipients, dueAt } = notices;
  const former = sql`SELECT f.value FROM ${workspaces} JOIN json_each(${workspaces.adminEmails}) AS f
    WHERE ${workspaces.id} = ${workspaceId}`;
  const left = sql`(SELECT json_group_array(a.value) FROM json_each(${JSON.stringify(adminEmails)}) AS a
    WHERE a.value IN (SELECT l.value FROM json_each(${recipients}) AS l) OR a.value NOT IN (${former}))`;
  return qb
    .update(notices)
    .set({ recipients: left })
    .where(and(eq(notices.workspaceId, workspaceId), isNotNull(dueAt), isNotNull(recipients)));
}
