import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { PENDING_COUNTED_MAX } from "../contract/limits.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { newestFirst } from "../db/page.ts";
import { deliveries, earlierSecrets, subscriptions } from "../db/schema.ts";
import { IS_PENDING, isThere, unknownWebhook } from "./conditions.ts";
import type { WebhookView } from "./views.ts";

const ITS_PENDING = sql`FROM ${deliveries} WHERE ${IS_PENDING}`;

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
  nextAt: subscriptions.nextAt,
  lastAttempt: subscriptions.lastAttempt,
  pending: sql<number>`(SELECT count(*) FROM (SELECT 1 ${ITS_PENDING} LIMIT ${PENDING_COUNTED_MAX}))`,
  dueAt: sql<number | null>`(SELECT min(${deliveries.dueAt}) ${ITS_PENDING})`,
  overlapEndsAt: sql<number | null>`(SELECT max(${earlierSecrets.until}) FROM ${earlierSecrets}
    WHERE ${earlierSecrets.subscriptionId} = ${subscriptions.id})`,
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
export async function listHealth(db: Database, workspaceId: string): Promise<WebhookView[]> {
  const isOwn = and(eq(subscriptions.workspaceId, workspaceId), isNull(subscriptions.deletedAt));
  return (await query(db, healthOf(isOwn))).map(toView);
}

/** A subscription and its health. @throws InputError if there is none. */
export async function findHealth(db: Database, webhookId: string): Promise<WebhookView> {
  const [row] = await query(db, healthOf(isThere(webhookId)));
  if (!row) throw unknownWebhook();
  return toView(row);
}

function toView(row: HealthRow): WebhookView {
  const { webhookId, url, events, description, keyId, headers, failures, pending, nextAt, dueAt } =
    row;
  const { lastAttempt: last } = row;
  return {
    ...{ webhookId, url, events, description, keyId, headers },
    createdAt: isoTime(row.createdAt),
    disabledAt: isoTimeOrNull(row.disabledAt),
    state: stateOf(row),
    failingSince: isoTimeOrNull(row.failingSince),
    ...{ failures, pending },
    nextAttemptAt:
      row.disabledAt !== null || dueAt === null ? null : isoTime(Math.max(dueAt, nextAt)),
    lastAttempt: last && { ...last, at: isoTime(last.at) },
    overlapEndsAt: isoTimeOrNull((row.overlapEndsAt ?? 0) > Date.now() ? row.overlapEndsAt : null),
  };
}

function stateOf({ disabledAt, failingSince, slow }: HealthRow): WebhookView["state"] {
  if (disabledAt !== null) return "disabled";
  if (failingSince !== null) return "failing";
  return slow ? "slow" : "healthy";
}
