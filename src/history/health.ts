import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { eventTimeOf } from "../contract/ids.ts";
import { PENDING_COUNTED_MAX, RESPONSES_PER_DAY, TELL_AFTER_MS } from "../contract/limits.ts";
import { isoTime, isoTimeOrNull, MINUTE_MS } from "../contract/time.ts";
import { qb, toJsonValue } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { sortNewest } from "../db/page.ts";
import { attempts, deliveries, PRIORITY, subscriptions } from "../db/schema.ts";
import {
  deliveryState,
  isUnsuccessful,
  listsType,
  PENDING,
  precedesCancellation,
  UNSUCCESSFUL,
} from "../db/states.ts";
import { isInLine, LINES, nextSendAt } from "../delivery/due.ts";
import { openResponse } from "../delivery/response.ts";
import type { Hex } from "../primitives/bytes.ts";
import { isSubscription, unknownWebhook } from "../subscriptions/subscriptions.ts";
import { openDataKey, sealedDataKeyOf } from "../workspaces/data-keys.ts";
import { countResponses, toDays } from "./counts.ts";
import { rejectedTypes } from "./rejections.ts";
import type { DayView, WebhookView } from "./views.ts";

/* Reads the health of subscriptions, for the home page of the portal, in one round trip. */

/**
 * Lists the subscriptions of a workspace with their health, newest first. A workspace has at most
 * `AGREED_SUBSCRIPTIONS_MAX` subscriptions, so the read is bounded. It counts no deliveries, because the portal repeats
 * it every few seconds.
 */
export async function listSubscriptionHealth(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  workspaceId: string,
): Promise<WebhookView[]> {
  const now = Date.now();
  const isOwn = and(eq(subscriptions.workspaceId, workspaceId), isNull(subscriptions.deletedAt));
  const { rows, failures } = await query(db, selectHealth(isOwn));
  const views = rows.map(async (row) => {
    const isIts = ({ subscriptionId }: { subscriptionId: string }) =>
      subscriptionId === row.webhookId;
    const lastFailure = await openLastFailure(env, row, failures.filter(isIts));
    return toView(row, lastFailure, toDays(row.dailyCounts, now), now);
  });
  return Promise.all(views);
}

/**
 * Reads one subscription with its health and its days in detail, and counts its pending deliveries, up to
 * `PENDING_COUNTED_MAX`.
 *
 * @throws InputError if there is none.
 */
export async function findSubscriptionHealth(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  webhookId: string,
) {
  const now = Date.now();
  const isIt = isSubscription(webhookId);
  const { rows, failures, pending, retrying } = await query(db, {
    ...selectHealth(isIt),
    pending: countPending(isIt, false),
    retrying: countPending(isIt, true),
  });
  const [row] = rows;
  if (!row) throw unknownWebhook();
  const days = toDays(row.dailyCounts, now);
  return {
    ...toView(row, await openLastFailure(env, row, failures), days, now),
    pending: pending[0]?.counted ?? 0,
    retrying: retrying[0]?.counted ?? 0,
    days,
  };
}

/** @param which SQL condition on `subscriptions`. */
function selectHealth(which: SQL | undefined) {
  return { rows: selectSubscriptions(which), failures: selectLastFailures(which) };
}

function selectSubscriptions(which: SQL | undefined) {
  return qb
    .select({
      webhookId: subscriptions.id,
      workspaceId: subscriptions.workspaceId,
      sealedDataKey: sealedDataKeyOf(subscriptions.workspaceId),
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
      circuits: subscriptions.circuits,
      pendingExhaustedAt: subscriptions.pendingExhaustedAt,
      dailyCounts: subscriptions.dailyCounts,
      lastAttempt: subscriptions.lastAttempt,
      earlierSecrets: subscriptions.earlierSecrets,
      nextAttemptAt: nextSendAt(),
    })
    .from(subscriptions)
    .where(which)
    .orderBy(...sortNewest({ at: subscriptions.createdAt, id: subscriptions.id }));
}

type SubscriptionRow = ReturnType<typeof selectSubscriptions>["_"]["result"][number];

/**
 * Counts the pending deliveries of a subscription that have failed, or the others, in an index alone. It examines up to
 * `PENDING_COUNTED_MAX`, and leaves out those that are being cancelled.
 */
function countPending(which: SQL | undefined, hasFailed: boolean) {
  return qb.all<{ counted: number }>(sql`
    SELECT count(*) FILTER (WHERE NOT is_cancelled) AS counted FROM (
      SELECT (${subscriptions.hasToEnd} AND ${precedesCancellation()}) AS is_cancelled
      FROM ${subscriptions} CROSS JOIN ${LINES} ON (line.value->>1 = ${PRIORITY.retry}) = ${hasFailed ? 1 : 0}
        CROSS JOIN ${PENDING} ON ${isInLine()}
      WHERE ${which} LIMIT ${sql.raw(`${PENDING_COUNTED_MAX}`)})`);
}

interface FailureRow {
  subscriptionId: string;
  eventId: string;
  type: WebhookEvent;
  at: number;
  outcome: string;
  status: number | null;
  durationMs: number | null;
  /** The stored part of the response, encrypted; null if none was stored. */
  response: Hex | null;
}

/**
 * Selects the last attempts of two deliveries, each with its response: the newest one that is retried, and the newest
 * exhausted one.
 */
function selectLastFailures(which: SQL | undefined) {
  return qb.all<FailureRow>(sql`
    SELECT ${subscriptions.id} AS subscriptionId, ${deliveries.eventId} AS eventId, ${deliveries.type} AS type,
      ${deliveries.lastAt} AS at, ${deliveries.lastOutcome} AS outcome, ${deliveries.lastStatus} AS status,
      ${deliveries.lastDurationMs} AS durationMs,
      (SELECT ${toJsonValue(attempts.response)} FROM ${attempts}
        WHERE ${attempts.subscriptionId} = ${deliveries.subscriptionId} AND ${attempts.eventId} = ${deliveries.eventId}
          AND ${attempts.at} = ${deliveries.lastAt}
        ORDER BY ${attempts.attempt} DESC LIMIT 1) AS response
    FROM ${subscriptions}
      CROSS JOIN json_each('["pending", "exhausted"]') AS state
      CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = (
        SELECT ${deliveries.eventId} FROM ${UNSUCCESSFUL}
        WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = state.value
          AND ${isUnsuccessful()}
        ORDER BY ${deliveries.eventId} DESC LIMIT 1)
    WHERE ${which} AND ${deliveries.lastAt} IS NOT NULL AND ${deliveryState()} <> 'cancelled'`);
}

/** Returns the attempt that failed last, with its response decrypted; null if there is none. */
async function openLastFailure(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  { workspaceId, sealedDataKey }: SubscriptionRow,
  failures: FailureRow[],
): Promise<WebhookView["lastFailure"]> {
  const [last] = failures.toSorted((a, b) => b.at - a.at);
  if (!last) return null;
  const { subscriptionId, response, at, ...attempt } = last;
  // Few failures have no response, so the key is rarely opened in vain.
  const key = response && (await openDataKey(env.ENCRYPTION_KEYS, workspaceId, sealedDataKey));
  const delivery = { subscriptionId, eventId: last.eventId };
  const opened = key ? await openResponse(key, delivery, response) : null;
  return { ...attempt, at: isoTime(at), response: opened };
}

function toView(
  row: SubscriptionRow,
  lastFailure: WebhookView["lastFailure"],
  days: DayView[],
  now: number,
): WebhookView {
  const rejected = row.disabledAt === null ? rejectedTypes(row) : [];
  const overlaps = (row.earlierSecrets ?? []).map(({ until }) => until);
  const overlapEndsAt = Math.max(0, ...overlaps);
  return {
    webhookId: row.webhookId,
    url: row.url,
    events: row.events,
    description: row.description,
    headers: row.headers,
    keyId: row.keyId,
    createdAt: isoTime(row.createdAt),
    disabledAt: isoTimeOrNull(row.disabledAt),
    state: stateOf(row, rejected.length > 0, now),
    rejected: rejected.map(({ since, ...type }) => ({ ...type, since: isoTime(since) })),
    failingSince: isoTimeOrNull(row.failingSince),
    failures: row.failures,
    pendingExhaustedAt: isoTimeOrNull(row.pendingExhaustedAt),
    responseLimitReached: countResponses(row.dailyCounts, now) >= RESPONSES_PER_DAY,
    successRate: successRate(days),
    days: days.map(({ date, delivered, failed, exhausted }) => ({
      date,
      delivered,
      failed,
      exhausted,
    })),
    nextAttemptAt:
      row.disabledAt !== null || row.nextAttemptAt === null ? null : isoTime(row.nextAttemptAt),
    lastAttempt: row.lastAttempt && { ...row.lastAttempt, at: isoTime(row.lastAttempt.at) },
    lastFailure,
    overlapEndsAt: overlapEndsAt > now ? isoTime(overlapEndsAt) : null,
  };
}

/** The share of attempts that succeeded; null if there were none. */
function successRate(days: readonly DayView[]): number | null {
  const delivered = days.reduce((sum, day) => sum + day.delivered, 0);
  const failed = days.reduce((sum, day) => sum + day.failed + day.exhausted, 0);
  return delivered + failed === 0 ? null : delivered / (delivered + failed);
}

/** How long a delivery must have been due before its subscription counts as late. */
const BACKLOG_MS = 60_000;

function stateOf(row: SubscriptionRow, isRejecting: boolean, now: number): WebhookView["state"] {
  if (row.disabledAt !== null) return "disabled";
  // An endpoint that rejects one event type also fails for short times between its successes, so it is `rejecting`.
  // Once it has failed for a day, it accepts nothing, and is `failing`.
  const failedMs = row.failingSince === null ? 0 : now - row.failingSince;
  if (isRejecting && failedMs < TELL_AFTER_MS) return "rejecting";
  if (row.failingSince !== null) return "failing";
  if (row.slow) return "slow";
  return row.nextAttemptAt !== null && row.nextAttemptAt < now - BACKLOG_MS ? "backlog" : "healthy";
}

/** Maximum deliveries of each state that `findUndeliveredSince` examines. */
const ENDED_EXAMINED_MAX = 1_000;

/**
 * How long before its commit an event may be dated, at most. A recording call is dated when it arrives, so a
 * subscription that was disabled before the commit misses an event that is older than that.
 */
const RECORDING_MAX_MS = MINUTE_MS;

/**
 * Finds when the oldest event was recorded that a subscription has not received: its delivery has failed, waits for
 * a retry, or was cancelled. Null if there is none. Only event types that it lists count, because others cannot be sent
 * again. For a disabled subscription, deliveries that ended before its last failures do not count, and the events since it
 * was disabled do. For an active one, events that never had a delivery do not count, because finding them would take
 * reading all events. The platform knows since when its workspace had no access.
 *
 * The time may be too early if more than `ENDED_EXAMINED_MAX` deliveries have failed, or by `RECORDING_MAX_MS` if the
 * subscription is disabled. A replay from that time still leaves out no event, and sends no delivered one.
 */
export async function findUndeliveredSince(
  db: Database,
  webhookId: string,
): Promise<string | null> {
  const isOwn = sql`${subscriptions.id} = ${webhookId} AND ${deliveries.subscriptionId} = ${subscriptions.id}`;
  const { subscription, retrying, exhausted, cancelled, untried } = await query(db, {
    subscription: qb
      .select({ disabledAt: subscriptions.disabledAt })
      .from(subscriptions)
      .where(eq(subscriptions.id, webhookId)),
    // Deliveries of an unlisted type are being cancelled.
    retrying: qb.all<{ eventId: string }>(sql`
      SELECT id AS eventId FROM (
        SELECT ${deliveries.eventId} AS id, ${listsType(deliveries.type)} AS is_listed
        FROM ${subscriptions} CROSS JOIN ${UNSUCCESSFUL}
        WHERE ${isOwn} AND ${deliveries.state} = 'pending' AND ${isUnsuccessful()}
        ORDER BY ${deliveries.eventId} LIMIT ${ENDED_EXAMINED_MAX})
      WHERE is_listed LIMIT 1`),
    exhausted: selectFirstEnded(isOwn, "exhausted"),
    cancelled: selectFirstEnded(isOwn, "cancelled"),
    // Deliveries that are being cancelled may not have been tried. They come before those that were recorded since.
    untried: qb.all<{ eventId: string | null }>(sql`
      SELECT (
        SELECT iif(${precedesCancellation()}, ${deliveries.eventId}, NULL)
        FROM ${PENDING}
        WHERE ${isOwn} AND ${deliveries.state} = 'pending' AND ${deliveries.type} = type.value AND ${deliveries.priority} = ${PRIORITY.untried}
        ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT 1) AS eventId
      FROM ${subscriptions} CROSS JOIN json_each(${subscriptions.events}) AS type
      WHERE ${subscriptions.id} = ${webhookId}`),
  });
  const [found] = subscription;
  if (!found) return null;
  const ended = [...exhausted, ...cancelled].map(
    ({ first, last, examined }) => first ?? (examined === ENDED_EXAMINED_MAX ? last : null),
  );
  const ids = [
    ...ended,
    ...retrying.map(({ eventId }) => eventId),
    ...untried.map(({ eventId }) => eventId),
  ].filter((id) => id !== null);
  const times = ids.map(eventTimeOf);
  if (found.disabledAt !== null) times.push(found.disabledAt - RECORDING_MAX_MS);
  return times.length === 0 ? null : isoTime(Math.min(...times));
}

/** Selects, among the oldest deliveries in a state, the first that counts, the last one, and their number. */
function selectFirstEnded(isOwn: SQL, state: "exhausted" | "cancelled") {
  const { disabledAt, failingSince } = subscriptions;
  const beganAt = sql`iif(${disabledAt} IS NULL, 0, coalesce(${failingSince}, ${disabledAt}))`;
  return qb.all<{ first: string | null; last: string | null; examined: number }>(sql`
    SELECT min(id) FILTER (WHERE counts) AS first, max(id) AS last, count(*) AS examined FROM (
      SELECT ${deliveries.eventId} AS id,
        ${deliveries.settledAt} >= ${beganAt} AND NOT ${deliveries.deliveredEarlier}
          AND ${listsType(deliveries.type)} AS counts
      FROM ${subscriptions} CROSS JOIN ${UNSUCCESSFUL}
      WHERE ${isOwn} AND ${deliveries.state} = ${state} AND ${isUnsuccessful()}
      ORDER BY ${deliveries.eventId} LIMIT ${ENDED_EXAMINED_MAX})`);
}
