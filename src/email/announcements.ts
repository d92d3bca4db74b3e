import { and, eq, gt, isNull, sql } from "drizzle-orm";
import {
  EMAIL_HOST_INTERVAL_MS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  WORKSPACE_EMAILS_PER_DAY,
} from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { prepared, type ResultOf, type Statements } from "../db/client.ts";
import {
  type Administrator,
  type AnnouncedEmail,
  EMAIL_KINDS,
  type EmailKind,
  IS_NOTABLE,
  subscriptions,
  workspaces,
} from "../db/schema.ts";
import { isWritable } from "../db/states.ts";
import { FACTS, trueSince } from "./facts.ts";

/** Maximum subscriptions that one query returns, which is more than a workspace may have. */
export const CANDIDATES_MAX = 500;

/** An e-mail of the last day about any subscription of the workspace. */
type Recent = AnnouncedEmail & { kind: EmailKind };

const NOW = sql.placeholder("now");

/**
 * Reads a page of the subscriptions that may need an e-mail, in the order of their workspaces. An index finds them
 * without reading the healthy ones. A subscription that was disabled so long ago that no reminder follows is left out.
 *
 * `recent` includes deleted subscriptions. It needs two queries of a workspace's subscriptions, because those that are
 * deleted have a partial index of their own, and so have the others.
 */
export const selectCandidates = prepared(
  qb
    .select({
      workspaceId: subscriptions.workspaceId,
      administrators: workspaces.adminEmails,
      subscriptionId: subscriptions.id,
      url: subscriptions.url,
      ...FACTS,
      announced: subscriptions.announced,
      recent: sql`(
          SELECT json_group_array(json_set(email.value, '$.kind', email.key))
          FROM (
            SELECT announced FROM ${subscriptions} AS own
              WHERE own.workspace_id = ${subscriptions.workspaceId} AND own.deleted_at IS NULL
            UNION ALL
            SELECT announced FROM ${subscriptions} AS own
              WHERE own.workspace_id = ${subscriptions.workspaceId} AND own.deleted_at IS NOT NULL
          ) AS of_workspace, json_each(of_workspace.announced) AS email
          WHERE email.value ->> 'announcedAt' > ${NOW} - ${DAY_MS})`
        .mapWith((text: string): Recent[] => JSON.parse(text))
        .as("recent"),
    })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, subscriptions.workspaceId))
    .where(
      and(
        sql`${subscriptions.id} IN (
          SELECT notable.id FROM ${subscriptions} AS notable INDEXED BY subscriptions_notable
            WHERE ${IS_NOTABLE})`,
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

/** An e-mail to record about a subscription. */
interface AnnouncementEntry extends AnnouncedEmail {
  subscriptionId: string;
  kind: EmailKind;
}

/** An e-mail to each administrator of a workspace, about its subscriptions to one host. */
export interface Announcement {
  workspaceId: string;
  kind: EmailKind;
  isReminder: boolean;
  recipients: string[];
  /** The values to record once the queue has the e-mails, one entry for each subscription. */
  entries: AnnouncementEntry[];
}

/**
 * Decides which e-mails the administrators of a workspace get now. An e-mail waits for a later run if it exceeds the
 * daily maximum, or follows too soon after one of its kind about the same host. That run decides again.
 *
 * @param candidates the subscriptions of one workspace.
 */
export function chooseAnnouncements(candidates: Candidate[], now: number): Announcement[] {
  const [first] = candidates;
  if (!first) return [];
  const { workspaceId, administrators, recent } = first;
  // One person may be named twice, in upper and lower case.
  const byPerson = Map.groupBy(administrators.map(addressOf), (email) => email.toLowerCase());
  const recipients = [...byPerson.values()].flatMap(([email]) => email ?? []);
  if (recipients.length === 0) return [];
  const isSoon = ({ kind, host }: AnnouncementEntry) =>
    recent.some(
      (one) =>
        one.kind === kind && one.host === host && now - one.announcedAt < EMAIL_HOST_INTERVAL_MS,
    );
  const entries = candidates
    .flatMap((candidate) => EMAIL_KINDS.map((kind) => entryOf(kind, candidate, now)))
    .filter((entry) => entry !== null)
    .filter((entry) => !isSoon(entry));
  const byEmail = Map.groupBy(entries, ({ kind, host, reminders }) =>
    JSON.stringify([kind, host, reminders > 0]),
  );
  let left = WORKSPACE_EMAILS_PER_DAY - recent.reduce((sum, { emails }) => sum + emails, 0);
  const chosen: Announcement[] = [];
  for (const group of byEmail.values()) {
    const [entry] = group;
    if (!entry || recipients.length > left) continue;
    left -= recipients.length;
    // The first entry counts the e-mails of all.
    entry.emails += recipients.length;
    const isReminder = entry.reminders > 0;
    chosen.push({ workspaceId, kind: entry.kind, isReminder, recipients, entries: group });
  }
  return chosen;
}

/** Makes the entry of the announcement that a subscription needs; null if it needs none of this kind. */
function entryOf(kind: EmailKind, candidate: Candidate, now: number): AnnouncementEntry | null {
  const { subscriptionId, url, announced } = candidate;
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
  // The entry of a recovery replaces the entry of the failure.
  const replaced = kind === "recovered" ? [last, failing] : [last];
  const emails = replaced
    .filter((one) => one !== undefined && now - one.announcedAt < DAY_MS)
    .reduce((sum, one) => sum + (one?.emails ?? 0), 0);
  return {
    subscriptionId,
    kind,
    host: new URL(url).host,
    since,
    announcedAt: now,
    reminders: isNews ? 0 : last.reminders + 1,
    emails,
  };
}

const patchAnnounced = prepared(
  qb
    .update(subscriptions)
    .set({ announced: sql`json_patch(${subscriptions.announced}, patch.value)` })
    .from(sql`json_each(${sql.placeholder("patches")}) AS patch`)
    .where(and(sql`${subscriptions.id} = patch.key`, isWritable(subscriptions.workspaceId))),
);

/**
 * Records announcements, unless the subscription was deleted, or its workspace moves. A recovery removes the failure, so
 * that the next failure is announced again.
 */
export function recordAnnouncements(announced: Announcement[]): Statements<unknown> {
  // One merge patch (RFC 7396) for each subscription, because `UPDATE … FROM` updates a row only once.
  const patches: Record<string, Partial<Record<EmailKind, AnnouncedEmail | null>>> = {};
  for (const { subscriptionId, kind, ...email } of announced.flatMap((one) => one.entries)) {
    const patch = { ...patches[subscriptionId], [kind]: email };
    patches[subscriptionId] = kind === "recovered" ? { ...patch, failing: null } : patch;
  }
  return patchAnnounced({ patches: JSON.stringify(patches) });
}

/** Returns the e-mail address of an administrator. */
export function addressOf(administrator: Administrator): string {
  return typeof administrator === "string" ? administrator : administrator.email;
}
