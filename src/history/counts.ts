import { and, eq, gte, type SQL, sql } from "drizzle-orm";
import { type DeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { DELIVERY_COUNTS_KEPT_DAYS } from "../contract/limits.ts";
import { DAY_MS, isoTime } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { CLEANUP_MAX, type Part, prepared, readAs, type Statements } from "../db/client.ts";
import { deliveryCounts, subscriptions } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";
import type { DayView } from "./views.ts";

/*
 * Counts delivery attempts by subscription, UTC day, event type and outcome. The transaction that records
 * outcomes adds them up, so the counts are exact, and a subscription costs one row however many attempts it had.
 *
 * The counts of a day are a flat JSON object. `lead.created delivered`, `lead.created failed` and
 * `lead.created exhausted` count attempts; `failed` ones will be retried. `ms 200` counts the responses that
 * took at most 200 ms, and longer than the bound before it. `responses` counts the stored responses.
 */

/** Upper bounds of the histogram of response times. The last one has no limit. */
const RESPONSE_TIME_BOUNDS_MS = [
  10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000,
  7_500, 10_000,
] as const;

/** Number of days that `toDays` shows, including today. */
const DAYS_SHOWN = 7;

/** A finished attempt; times are Unix milliseconds. */
export interface EndedAttempt {
  subscriptionId: string;
  type: WebhookEvent;
  /** The state of the delivery after the attempt: `pending` if it will be retried. */
  state: DeliveryState;
  /** The kind of its outcome, such as `answered` or `timed_out`. */
  outcome: string;
  startedAt: number;
  durationMs: number;
  /** The stored part of its response, if there is one. */
  response?: string | null;
}

/** The counts that a transaction adds to a subscription's day. */
export interface CountsOfDay {
  subscriptionId: string;
  /** When the UTC day started. */
  day: number;
  counts: Record<string, number>;
}

/** Counts attempts by subscription and by the day on which they ended. */
export function countAttempts(attempts: readonly EndedAttempt[]): CountsOfDay[] {
  const days = new Map<string, CountsOfDay>();
  for (const attempt of attempts) {
    const { subscriptionId, type, state, outcome, startedAt, durationMs, response } = attempt;
    const day = startOfDay(startedAt + durationMs);
    const key = `${subscriptionId} ${day}`;
    const ofDay = days.get(key) ?? { subscriptionId, day, counts: {} };
    days.set(key, ofDay);
    add(ofDay.counts, `${type} ${state === "pending" ? "failed" : state}`, 1);
    if (response) add(ofDay.counts, "responses", 1);
    // An attempt without a response has no response time.
    if (outcome === "answered") add(ofDay.counts, `ms ${boundOf(durationMs)}`, 1);
  }
  return [...days.values()];
}

/**
 * Prepares the statement that adds counts, for the transaction that records the outcomes.
 *
 * @param isWanted SQL condition on `subscriptions` and the row `c` of `json_each`, whose value is a `CountsOfDay`.
 *   It must be false when the transaction is applied a second time, or the attempts count twice.
 */
export function addCounts(isWanted: SQL) {
  const merged = sql`(
    SELECT json_group_object(key, total) FROM (
      SELECT key, sum(value) AS total FROM (
        SELECT key, value FROM json_each(${deliveryCounts.counts})
        UNION ALL
        SELECT key, value FROM json_each(excluded.counts))
      GROUP BY key))`;
  const insert = prepared(
    insertFrom(
      deliveryCounts,
      {
        workspaceId: subscriptions.workspaceId,
        subscriptionId: subscriptions.id,
        day: sql`c.value->>'day'`,
        counts: sql`c.value->'counts'`,
      },
      sql`FROM json_each(${sql.placeholder("counts")}) AS c
        JOIN ${subscriptions} ON ${subscriptions.id} = c.value->>'subscriptionId'
        WHERE ${isWanted}
        ON CONFLICT DO UPDATE SET counts = ${merged}`,
    ),
  );
  /** @param values the values of the placeholders in `isWanted`. */
  return (added: CountsOfDay[], values: Record<string, unknown>) =>
    insert({ ...values, counts: JSON.stringify(added) });
}

type CountsRow = Pick<typeof deliveryCounts.$inferSelect, "subscriptionId" | "day" | "counts">;

/**
 * Reads the counts of the last `DAYS_SHOWN` days, a row for each subscription and day.
 *
 * @param which SQL condition on `subscriptions`.
 */
export function readCounts(which: SQL | undefined, now: number): Statements<CountsRow[]> {
  const { workspaceId, subscriptionId, day, counts } = deliveryCounts;
  const isOfSubscription = and(
    eq(workspaceId, subscriptions.workspaceId),
    eq(subscriptionId, subscriptions.id),
    gte(day, firstDay(now)),
  );
  const rows = qb
    .select({ subscriptionId, day, counts })
    .from(subscriptions)
    // CROSS JOIN makes SQLite look up the days of each subscription.
    .crossJoin(deliveryCounts)
    .where(and(which, isOfSubscription));
  return readAs(rows, (found) => found);
}

/** Returns the last `DAYS_SHOWN` days of one subscription, oldest first. A day without attempts has zeros. */
export function toDays(rows: readonly CountsRow[], now: number): DayView[] {
  const byDay = new Map(rows.map(({ day, counts }) => [day, counts]));
  return Array.from({ length: DAYS_SHOWN }, (_, i) => {
    const day = firstDay(now) + i * DAY_MS;
    return toDay(day, byDay.get(day) ?? {});
  });
}

function toDay(day: number, counts: Record<string, number>): DayView {
  const types = WebhookEvent.options
    .map((type) => ({
      type,
      delivered: counts[`${type} delivered`] ?? 0,
      failed: counts[`${type} failed`] ?? 0,
      exhausted: counts[`${type} exhausted`] ?? 0,
    }))
    .filter(({ delivered, failed, exhausted }) => delivered + failed + exhausted > 0);
  const total = (outcome: "delivered" | "failed" | "exhausted") =>
    types.reduce((sum, ofType) => sum + ofType[outcome], 0);
  return {
    date: isoTime(day).slice(0, 10),
    delivered: total("delivered"),
    failed: total("failed"),
    exhausted: total("exhausted"),
    types,
    medianMs: percentile(counts, 0.5),
    p95Ms: percentile(counts, 0.95),
  };
}

/** Returns the bound that a share of the response times did not exceed; null if there were no responses. */
function percentile(counts: Record<string, number>, share: number): number | null {
  const histogram = RESPONSE_TIME_BOUNDS_MS.map((bound) => counts[`ms ${bound}`] ?? 0);
  const total = histogram.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let seen = 0;
  const i = histogram.findIndex((count) => {
    seen += count;
    return seen >= share * total;
  });
  return RESPONSE_TIME_BOUNDS_MS[i] ?? null;
}

/** Deletes the counts of days past their retention, oldest first. */
export function deleteOldCounts(now: number): Part {
  const { workspaceId, subscriptionId, day } = deliveryCounts;
  const before = startOfDay(now) - DELIVERY_COUNTS_KEPT_DAYS * DAY_MS;
  return sql`DELETE FROM ${deliveryCounts}
    WHERE (${workspaceId}, ${subscriptionId}, ${day}) IN (
      SELECT ${workspaceId}, ${subscriptionId}, ${day} FROM ${deliveryCounts}
      WHERE ${day} < ${before} AND ${isWritable(workspaceId)} ORDER BY ${day} LIMIT ${CLEANUP_MAX})`;
}

function startOfDay(time: number): number {
  return Math.floor(time / DAY_MS) * DAY_MS;
}

function firstDay(now: number): number {
  return startOfDay(now) - (DAYS_SHOWN - 1) * DAY_MS;
}

function boundOf(durationMs: number): number {
  const bounds: readonly number[] = RESPONSE_TIME_BOUNDS_MS;
  return bounds.find((bound) => durationMs <= bound) ?? (bounds.at(-1) as number);
}

function add(counts: Record<string, number>, key: string, count: number): void {
  counts[key] = (counts[key] ?? 0) + count;
}
