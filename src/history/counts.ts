import { and, eq, gte, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { DELIVERY_COUNTS_KEPT_DAYS } from "../contract/limits.ts";
import { DAY_MS, isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { CLEANUP_MAX, type Part, readAs, type Statements } from "../db/client.ts";
import { deliveryCounts, subscriptions } from "../db/schema.ts";
import { RESPONSE_TIME_BOUNDS_MS, startOfDay } from "../delivery/attempts.ts";
import { isWritable } from "../workspaces/write-lock.ts";
import type { DayView } from "./views.ts";

/* Reads the daily counts of delivery attempts, which delivery/attempts.ts writes. */

/** Number of days that `toDays` shows, including today. */
const DAYS_SHOWN = 7;

export type CountsRow = Pick<
  typeof deliveryCounts.$inferSelect,
  "subscriptionId" | "day" | "counts"
>;

/**
 * Reads the counts of the last `DAYS_SHOWN` days, a row for each subscription and day.
 *
 * @param which SQL condition on `subscriptions`.
 */
export function selectCounts(which: SQL | undefined, now: number): Statements<CountsRow[]> {
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

/** Returns how many responses were stored for a subscription today. */
export function countResponses(rows: readonly CountsRow[], now: number): number {
  return rows.find(({ day }) => day === startOfDay(now))?.counts.responses ?? 0;
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

function firstDay(now: number): number {
  return startOfDay(now) - (DAYS_SHOWN - 1) * DAY_MS;
}
