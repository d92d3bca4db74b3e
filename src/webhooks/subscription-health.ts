import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { PENDING_COUNTED_MAX, TELL_AFTER_MS } from "../contract/limits.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { newestFirst } from "../db/page.ts";
import { subscriptions } from "../db/schema.ts";
import { IS_PENDING, isThere, PENDING, STATE, unknownWebhook } from "./conditions.ts";
import { readyAt } from "./dispatch/order.ts";
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
    FROM ${PENDING} WHERE ${IS_PENDING} LIMIT ${PENDING_COUNTED_MAX}))`,
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
 * A workspace's subscriptions, newest first, each with its health. Reads up to `PENDING_COUNTED_MAX`
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
  const [row] = await query(db, healthOf(isThere(webhookId)));
  if (!row) throw unknownWebhook();
  return toView(row, Date.now());
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
