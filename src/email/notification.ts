import { and, eq, isNull, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { REDELIVERY_MAX_AGE_MS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { inJson } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import {
  type Administrator,
  deliveries,
  type EmailKind,
  events,
  type LastAttempt,
  subscriptions,
  workspaces,
} from "../db/schema.ts";
import { typesToReport } from "../history/rejections.ts";
import { FACTS, type Facts, trueSince } from "./facts.ts";
import type { EmailMessage } from "./queue.ts";

/** The facts that an e-mail reports; times are Unix milliseconds. */
export interface Notification {
  kind: EmailKind;
  isReminder: boolean;
  workspaceName: string;
  /** The subscriptions that are still in the reported state. */
  subscriptionIds: string[];
  host: string;
  /** When the first of them got into that state. */
  since: number;
  /** The event types that it is about. */
  events: WebhookEvent[];
  /** The outcome of the last attempt that it is about. */
  last: Pick<LastAttempt, "outcome" | "status"> | null;
  /** The events that disabled subscriptions have missed; null for other e-mails. */
  missed: Missed | null;
}

/** The events that disabled subscriptions have missed. */
export interface Missed {
  /** The number of missed events among those that were examined. */
  count: number;
  /** Whether there may be more, which were not examined. */
  more: boolean;
  /** When the oldest of them becomes too old to be sent; null if there is none. */
  until: number | null;
}

type Known = Facts & { subscriptionId: string; url: string };

/**
 * Reads the facts that an e-mail reports, and the administrators of its workspace, at the time when it is sent.
 *
 * @returns null if the reported state is over, or if the workspace has lost access.
 */
export async function readNotification(
  db: Database,
  env: Env,
  { workspaceId, kind, subscriptionIds, isReminder }: EmailMessage,
  now: number,
): Promise<{ notification: Notification; administrators: Administrator[] } | null> {
  const { found, workspace } = await query(db, {
    found: db
      .select({ subscriptionId: subscriptions.id, url: subscriptions.url, ...FACTS })
      .from(subscriptions)
      .where(
        and(
          inJson(subscriptions.id, subscriptionIds),
          eq(subscriptions.workspaceId, workspaceId),
          isNull(subscriptions.deletedAt),
        ),
      ),
    workspace: db
      .select({ name: workspaces.name, administrators: workspaces.adminEmails })
      .from(workspaces)
      .where(and(eq(workspaces.id, workspaceId), eq(workspaces.accessGranted, true))),
  });
  const [owner] = workspace;
  const subjects = found.filter((one) => trueSince(kind, one, now) !== null);
  const [first] = subjects;
  if (!owner || !first) return null;
  const types = subjects.flatMap((one) => typesOf(kind, one, now));
  return {
    administrators: owner.administrators,
    notification: {
      kind,
      isReminder,
      workspaceName: owner.name,
      subscriptionIds: subjects.map(({ subscriptionId }) => subscriptionId),
      host: new URL(first.url).host,
      since: Math.min(...subjects.map((one) => sinceOf(kind, one, now))),
      events: [...new Set(types)],
      last: lastOf(kind, subjects, now),
      missed: kind === "disabled" ? await findMissed(db, env, workspaceId, subjects, now) : null,
    },
  };
}

/** Returns since when a subscription is in the reported state; for a disabled one, since when it had failed. */
function sinceOf(kind: EmailKind, one: Known, now: number): number {
  if (kind === "rejecting") return Math.min(...typesToReport(one, now).map(({ since }) => since));
  const since = trueSince(kind, one, now) ?? now;
  return kind === "disabled" ? (one.failingSince ?? since) : since;
}

function typesOf(kind: EmailKind, one: Known, now: number): WebhookEvent[] {
  return kind === "rejecting" ? typesToReport(one, now).map(({ type }) => type) : one.events;
}

function lastOf(kind: EmailKind, subjects: Known[], now: number): Notification["last"] {
  if (kind === "rejecting") return subjects.flatMap((one) => typesToReport(one, now))[0] ?? null;
  const attempts = subjects.flatMap(({ lastAttempt }) => lastAttempt ?? []);
  return attempts.toSorted((a, b) => b.at - a.at)[0] ?? null;
}

/** Maximum events that are examined for missed ones, divided by the number of subscriptions. */
const MISSED_EXAMINED_MAX = 5_000;

/** Finds the events that at least one of the subscriptions has not received since it began to fail. */
async function findMissed(
  db: Database,
  env: Env,
  workspaceId: string,
  subjects: Known[],
  now: number,
): Promise<Missed> {
  const keptMs = Math.min(REDELIVERY_MAX_AGE_MS, env.EVENTS_KEPT_DAYS * DAY_MS);
  const owed = subjects.map((one) => ({
    id: one.subscriptionId,
    types: one.events,
    from: eventIdAt(Math.max(sinceOf("disabled", one, now), now - keptMs)),
  }));
  const from = owed.map((one) => one.from).toSorted()[0];
  const limit = Math.ceil(MISSED_EXAMINED_MAX / subjects.length);
  // Raw SQL is needed, because Drizzle has no FILTER clause.
  const isMissed = sql`EXISTS (
    SELECT 1 FROM json_each(${JSON.stringify(owed)}) AS s
    WHERE e.id >= s.value->>'from'
      AND e.type IN (SELECT value FROM json_each(s.value->'types'))
      AND NOT EXISTS (
        SELECT 1 FROM ${deliveries} WHERE ${deliveries.subscriptionId} = s.value->>'id'
          AND ${deliveries.eventId} = e.id
          AND (${deliveries.state} = 'delivered' OR ${deliveries.deliveredEarlier})))`;
  const found = await db.get<{ examined: number; missed: number; oldest: number | null }>(sql`
    SELECT count(*) AS examined, count(*) FILTER (WHERE is_missed) AS missed,
      min(created_at) FILTER (WHERE is_missed) AS oldest
    FROM (SELECT created_at, ${isMissed} AS is_missed
      FROM (SELECT ${events.id} AS id, ${events.type} AS type, ${events.createdAt} AS created_at FROM ${events}
        WHERE ${events.workspaceId} = ${workspaceId} AND ${events.id} >= ${from} AND NOT ${events.test}
        ORDER BY ${events.id} LIMIT ${limit}) AS e)`);
  return {
    count: found.missed,
    more: found.examined === limit,
    until: found.oldest === null ? null : found.oldest + keptMs,
  };
}
