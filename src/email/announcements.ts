import { and, eq, getTableColumns, gt, isNull, type SQL, sql } from "drizzle-orm";
import {
  EMAIL_HOST_INTERVAL_MS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  WORKSPACE_EMAILS_PER_DAY,
} from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { fromJson, insertFrom, mapColumns, qb } from "../db/builder.ts";
import { combine, prepared, type ResultOf, type Statements } from "../db/client.ts";
import {
  type Administrator,
  announcements,
  EMAIL_KINDS,
  type EmailKind,
  subscriptions,
  workspaces,
} from "../db/schema.ts";
import { isWritable } from "../workspaces/write-lock.ts";
import { FACTS, trueSince } from "./facts.ts";

/** Maximum subscriptions that one query returns, which is more than a workspace may have. */
export const CANDIDATES_MAX = 500;

/** The part of an announcement that decides about the next one. */
type Announced = Pick<
  typeof announcements.$inferSelect,
  "since" | "announcedAt" | "reminders" | "emails"
>;
/** An announcement of the last day, about any subscription of the workspace. */
type Recent = Pick<typeof announcements.$inferSelect, "host" | "kind" | "announcedAt" | "emails">;

const NOW = sql.placeholder("now");
const json = <T>(expression: SQL, name: string) =>
  sql`(${expression})`.mapWith((text: string): T => JSON.parse(text)).as(name);

/**
 * Reads a page of the subscriptions that may need an e-mail, in the order of their workspaces. Two indexes find them
 * without reading the healthy ones. A subscription that was disabled so long ago that no reminder follows is left out.
 */
export const selectCandidates = prepared(
  qb
    .select({
      workspaceId: subscriptions.workspaceId,
      administrators: workspaces.adminEmails,
      subscriptionId: subscriptions.id,
      url: subscriptions.url,
      ...FACTS,
      announced: json<Partial<Record<EmailKind, Announced>>>(
        sql`SELECT json_group_object(kind, json_object('since', since, 'announcedAt', announced_at,
            'reminders', reminders, 'emails', emails))
          FROM ${announcements} WHERE ${announcements.subscriptionId} = ${subscriptions.id}`,
        "announced",
      ),
      recent: json<Recent[]>(
        sql`SELECT json_group_array(json_object('host', host, 'kind', kind, 'announcedAt', announced_at,
            'emails', emails))
          FROM ${announcements} WHERE ${announcements.workspaceId} = ${subscriptions.workspaceId}
            AND ${announcements.announcedAt} > ${NOW} - ${DAY_MS}`,
        "recent",
      ),
    })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, subscriptions.workspaceId))
    .where(
      and(
        sql`${subscriptions.id} IN (
          SELECT notable.id FROM ${subscriptions} AS notable INDEXED BY subscriptions_notable
            WHERE failing_since IS NOT NULL OR rejections <> '{}' OR disabled_by_failures OR pending_exhausted_at IS NOT NULL
          UNION SELECT subscription_id FROM ${announcements} WHERE kind = 'failing')`,
        sql`(${subscriptions.disabledAt} IS NULL OR ${subscriptions.disabledByFailures}
          AND ${subscriptions.disabledAt} > ${NOW} - ${(REMINDERS_MAX + 1) * REMINDER_WAIT_MS})`,
        isNull(subscriptions.deletedAt),
        eq(workspaces.accessGranted, true),
        isWritable(subscriptions.workspaceId),
        gt(subscriptions.workspaceId, sql.placeholder("after")),
      ),
    )
    .orderBy(subscriptions.workspaceId, subscriptions.id)
    .limit(CANDIDATES_MAX),
);
export type Candidate = ResultOf<ReturnType<typeof selectCandidates>>[number];

type AnnouncementRow = typeof announcements.$inferSelect;

/** An e-mail to each administrator of a workspace, about its subscriptions to one host. */
export interface Announcement {
  workspaceId: string;
  kind: EmailKind;
  isReminder: boolean;
  recipients: string[];
  /** The rows to record once the queue has the e-mails, one for each subscription. */
  rows: AnnouncementRow[];
}

/**
 * Decides which e-mails the administrators of a workspace get now. An e-mail beyond the daily maximum, or too soon
 * after one of the same kind about the same host, is left to a later run, which decides again.
 *
 * @param candidates the subscriptions of one workspace.
 */
export function chooseAnnouncements(candidates: Candidate[], now: number): Announcement[] {
  const [first] = candidates;
  if (!first) return [];
  const { workspaceId, administrators, recent } = first;
  const recipients = [...new Set(administrators.map(addressOf))];
  if (recipients.length === 0) return [];
  const isSoon = ({ kind, host }: AnnouncementRow) =>
    recent.some(
      (one) =>
        one.kind === kind && one.host === host && now - one.announcedAt < EMAIL_HOST_INTERVAL_MS,
    );
  const rows = candidates
    .flatMap((candidate) => EMAIL_KINDS.map((kind) => rowOf(kind, candidate, now)))
    .filter((row) => row !== null)
    .filter((row) => !isSoon(row));
  const byEmail = Map.groupBy(rows, ({ kind, host, reminders }) =>
    JSON.stringify([kind, host, reminders > 0]),
  );
  let left = WORKSPACE_EMAILS_PER_DAY - recent.reduce((sum, { emails }) => sum + emails, 0);
  const chosen: Announcement[] = [];
  for (const group of byEmail.values()) {
    const [row] = group;
    if (!row || recipients.length > left) continue;
    left -= recipients.length;
    // The first row counts the e-mails of all rows.
    row.emails += recipients.length;
    const isReminder = row.reminders > 0;
    chosen.push({ workspaceId, kind: row.kind, isReminder, recipients, rows: group });
  }
  return chosen;
}

/** Makes the row of the announcement that a subscription needs; null if it needs none of this kind. */
function rowOf(kind: EmailKind, candidate: Candidate, now: number): AnnouncementRow | null {
  const { workspaceId, subscriptionId, url, announced } = candidate;
  const since = trueSince(kind, candidate, now);
  if (since === null) return null;
  const last = announced[kind];
  const isNews = last === undefined || since > last.since;
  const isReminded =
    kind === "disabled" &&
    last !== undefined &&
    last.reminders < REMINDERS_MAX &&
    now - last.announcedAt >= REMINDER_WAIT_MS;
  if (!isNews && !isReminded) return null;
  const { failing } = announced;
  if (kind === "recovered" && !(failing && since > failing.since)) return null;
  // The row of a recovery replaces that of the failure.
  const replaced = kind === "recovered" ? [last, failing] : [last];
  const emails = replaced
    .filter((one) => one !== undefined && now - one.announcedAt < DAY_MS)
    .reduce((sum, one) => sum + (one?.emails ?? 0), 0);
  return {
    subscriptionId,
    kind,
    workspaceId,
    host: new URL(url).host,
    since,
    announcedAt: now,
    reminders: isNews ? 0 : last.reminders + 1,
    emails,
  };
}

const ROWS = sql`json_each(${sql.placeholder("rows")}) AS r`;
const COLUMNS = Object.keys(getTableColumns(announcements)) as (keyof AnnouncementRow)[];

const insertRows = prepared(
  insertFrom(
    announcements,
    mapColumns(announcements, COLUMNS, fromJson("r")),
    sql`FROM ${ROWS} JOIN ${subscriptions} ON ${subscriptions.id} = r.value->>'subscriptionId'
      WHERE ${isWritable(subscriptions.workspaceId)}
      ON CONFLICT (subscription_id, kind) DO UPDATE SET host = excluded.host, since = excluded.since,
        announced_at = excluded.announced_at, reminders = excluded.reminders, emails = excluded.emails`,
  ),
);

/** Deletes the announcement of a failure after its recovery, so that the next failure is announced again. */
const deleteRecovered = prepared(
  qb.delete(announcements).where(
    and(
      eq(announcements.kind, "failing"),
      sql`${announcements.subscriptionId} IN (SELECT r.value->>'subscriptionId' FROM ${ROWS}
          WHERE r.value->>'kind' = 'recovered')`,
    ),
  ),
);

/** Records announcements, unless the subscription was deleted, or its workspace moves. */
export function recordAnnouncements(announced: Announcement[]): Statements<unknown> {
  const rows = JSON.stringify(announced.flatMap((one) => one.rows));
  return combine([insertRows({ rows }), deleteRecovered({ rows })]);
}

/** Returns the e-mail address of an administrator. */
export function addressOf(administrator: Administrator): string {
  return typeof administrator === "string" ? administrator : administrator.email;
}
