import { WebhookEvent } from "../contract/enumerations.ts";
import { DAY_MS, dayOf } from "../contract/time.ts";
import type { DailyCounts } from "../db/schema.ts";
import { DAYS_COUNTED, RESPONSE_TIME_BOUNDS_MS } from "../delivery/attempts.ts";
import type { DayView } from "./views.ts";

/* Shows the daily counts of delivery attempts, which delivery/attempts.ts adds up. */

/** Returns the last `DAYS_COUNTED` days of a subscription, oldest first. A day without attempts has zeros. */
export function toDays(counts: DailyCounts, now: number): DayView[] {
  return Array.from({ length: DAYS_COUNTED }, (_, i) => {
    const date = dayOf(now - (DAYS_COUNTED - 1 - i) * DAY_MS);
    return toDay(date, counts[date] ?? {});
  });
}

/** Returns how many responses were stored for a subscription today. */
export function countResponses(counts: DailyCounts, now: number): number {
  return counts[dayOf(now)]?.responses ?? 0;
}

function toDay(date: string, counts: Record<string, number>): DayView {
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
    date,
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
