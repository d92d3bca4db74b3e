import { HOUR_MS, isoTime } from "../contract/time.ts";

/** Number of hours of usage that the gate of a key stores, including the current one. */
const USAGE_HOURS = 24;

export interface HourUsage {
  startsAt: number;
  /** Requests that counted against the rate limit. */
  requests: number;
  /** Requests beyond the rate limit, which got a 429. */
  refused: number;
  /** The highest number of requests in one window. */
  busiest: number;
}

/**
 * Adds requests to their hour. Updates `hours` in place if it has that hour.
 *
 * @param counts the requests to add; `busiest` is the number of requests in the window so far.
 * @returns the hours to store, at most 24, oldest first.
 */
export function countUsage(
  hours: HourUsage[],
  at: number,
  counts: Partial<Omit<HourUsage, "startsAt">>,
): HourUsage[] {
  const { requests = 0, refused = 0, busiest = 0 } = counts;
  const startsAt = Math.floor(at / HOUR_MS) * HOUR_MS;
  const hour = hours.find((known) => known.startsAt === startsAt);
  if (hour) {
    hour.requests += requests;
    hour.refused += refused;
    hour.busiest = Math.max(hour.busiest, busiest);
    return hours;
  }
  const all = [...hours, { startsAt, requests, refused, busiest }].sort(
    (a, b) => a.startsAt - b.startsAt,
  );
  return all.slice(-USAGE_HOURS);
}

/** Returns the last 24 hours, oldest first, the hour of `now` included. An hour without requests has zeros. */
export function lastHours(hours: readonly HourUsage[], now: number) {
  const current = Math.floor(now / HOUR_MS) * HOUR_MS;
  return Array.from({ length: USAGE_HOURS }, (_, i) => {
    const startsAt = current - (USAGE_HOURS - 1 - i) * HOUR_MS;
    const {
      requests = 0,
      refused = 0,
      busiest = 0,
    } = hours.find((known) => known.startsAt === startsAt) ?? {};
    return { hour: isoTime(startsAt).replace(".000", ""), requests, refused, busiest };
  });
}
