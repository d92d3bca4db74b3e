import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { eventTimeOf } from "../contract/ids.ts";
import { DELIVERIES_COUNTED_MAX, TELL_AFTER_MS } from "../contract/limits.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { newestFirst } from "../db/page.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { IS_NEW, IS_QUEUED, QUEUES, readyAt } from "../delivery/order.ts";
import {
  IS_PENDING,
  isSubscription,
  PENDING,
  STATE,
  unknownWebhook,
} from "../subscriptions/conditions.ts";
import { rejectedKinds } from "./rejections.ts";
import type { WebhookView } from "./views.ts";

const HEALTH = {
  webhookId: subscriptions.id,
  url: subscriptions.url,
  events: subscriptions.events,
  description: subscriptions.description,
  keyId: subscriptions.keyId,
  headers: subscriptions.headerNames,
  createdAt: subscriptions.createdAt,
  disabledAt: subscriptions.disabledAt,
  failingSince: subscriptions.failingSince,
  failures: subscriptions.failures,
  slow: subscriptions.slow,
  rejections: subscriptions.rejections,
  lastAttempt: subscriptions.lastAttempt,
  pending: sql<number>`(SELECT coalesce(sum(pending), 0) FROM (SELECT ${STATE} = 'pending' AS pending
    FROM ${PENDING} WHERE ${IS_PENDING} LIMIT ${DELIVERIES_COUNTED_MAX}))`,
  readyAt: readyAt(),
  overlapEndsAt: sql<
    number | null
  >`(SELECT max(value->>'until') FROM json_each(${subscriptions.earlierSecrets}))`,
};

const healthOf = (whose: SQL | undefined) =>
  qb
    .select(HEALTH)
    .from(subscriptions)
    .where(whose)
    .orderBy(...newestFirst({ at: subscriptions.createdAt, id: subscriptions.id }));

type HealthRow = ReturnType<typeof healthOf>["_"]["result"][number];

/**
 * A workspace's subscriptions, newest first, each with its health. Reads up to `DELIVERIES_COUNTED_MAX`
 * deliveries of each; a workspace has at most `AGREED_SUBSCRIPTIONS_MAX`.
 */
export async function listSubscriptionHealth(
  db: Database,
  workspaceId: string,
): Promise<WebhookView[]> {
  const isOwn = and(eq(subscriptions.workspaceId, workspaceId), isNull(subscriptions.deletedAt));
  const now = Date.now();
  return (await query(db, healthOf(isOwn))).map((row) => toView(row, now));
}

/** A subscription and its health. @throws InputError if there is none. */
export async function findSubscriptionHealth(
  db: Database,
  webhookId: string,
): Promise<WebhookView> {
  const [row] = await query(db, healthOf(isSubscription(webhookId)));
  if (!row) throw unknownWebhook();
  return toView(row, Date.now());
}

/** Maximum failed deliveries, and of each queue pending ones, among which the first is looked for. */
const LOOKED_AT_MAX = 1_000;

/**
 * When the first event was recorded that a subscription did not get: it failed, waits to be retried or was
 * cancelled. While it is disabled, what had failed before that failure does not count, and what it misses
 * does. Null if there is none.
 *
 * Of very many failed ones, it may be earlier than that, and so leaves out none; of very many that wait to be
 * retried, it is the first of those that wait the longest.
 */
export async function findUndeliveredSince(
  db: Database,
  webhookId: string,
): Promise<string | null> {
  const { id, disabledAt, failingSince, cancelling } = subscriptions;
  const { eventId, settledAt, deliveredEarlier, dueAt, state, subscriptionId } = deliveries;
  const began = sql`iif(${disabledAt} IS NULL, 0, coalesce(${failingSince}, ${disabledAt}))`;
  const queue = sql`SELECT ${eventId} AS id FROM ${PENDING} WHERE ${IS_QUEUED} ORDER BY ${dueAt}`;
  const [found] = await db.all<{ first: string | null; disabledAt: number | null }>(sql`
    SELECT ${disabledAt} AS disabledAt, (SELECT min(id) FROM (
      SELECT coalesce(min(id) FILTER (WHERE counts), iif(count(*) = ${LOOKED_AT_MAX}, max(id), NULL)) AS id FROM (
        SELECT ${eventId} AS id, ${settledAt} >= ${began} AND NOT ${deliveredEarlier} AS counts
        FROM ${deliveries} INDEXED BY deliveries_failed
        WHERE ${subscriptionId} = ${id} AND ${state} IN ('exhausted', 'cancelled')
        ORDER BY ${eventId} LIMIT ${LOOKED_AT_MAX})
      UNION ALL
      SELECT (SELECT min(id) FROM (${queue} DESC LIMIT ${LOOKED_AT_MAX})) FROM ${QUEUES} WHERE NOT ${IS_NEW}
      UNION ALL
      -- What is being cancelled may not have been tried.
      SELECT (${queue} LIMIT 1) FROM ${QUEUES} WHERE ${IS_NEW} AND ${cancelling})) AS first
    FROM ${subscriptions} WHERE ${id} = ${webhookId}`);
  const times = [found?.first && eventTimeOf(found.first), found?.disabledAt].filter(
    (time) => typeof time === "number",
  );
  return times.length === 0 ? null : isoTime(Math.min(...times));
}

function toView(row: HealthRow, now: number): WebhookView {
  const { webhookId, url, events, description, keyId, headers, failures, pending } = row;
  const { readyAt: at } = row;
  const { lastAttempt: last } = row;
  const rejected = row.disabledAt === null ? rejectedKinds(row, now) : [];
  return {
    ...{ webhookId, url, events, description, keyId, headers },
    createdAt: isoTime(row.createdAt),
    disabledAt: isoTimeOrNull(row.disabledAt),
    state: stateOf(row, rejected.length > 0, now),
    rejected: rejected.map(({ since, ...kind }) => ({ ...kind, since: isoTime(since) })),
    failingSince: isoTimeOrNull(row.failingSince),
    ...{ failures, pending },
    nextAttemptAt: row.disabledAt !== null || at === null ? null : isoTime(at),
    lastAttempt: last && { ...last, at: isoTime(last.at) },
    overlapEndsAt: isoTimeOrNull((row.overlapEndsAt ?? 0) > now ? row.overlapEndsAt : null),
  };
}

/** How long a delivery may be due before its subscription counts as behind. */
const BACKLOG_MS = 60_000;

function stateOf(row: HealthRow, isRejecting: boolean, now: number): WebhookView["state"] {
  if (row.disabledAt !== null) return "disabled";
  // Whoever rejects one kind fails in between; for a day, that is another matter.
  const failedMs = row.failingSince === null ? 0 : now - row.failingSince;
  if (isRejecting && failedMs < TELL_AFTER_MS) return "rejecting";
  if (row.failingSince !== null) return "failing";
  if (row.slow) return "slow";
  return row.readyAt !== null && row.readyAt < now - BACKLOG_MS ? "backlog" : "healthy";
}
