import { HOUR_MS, isoTime } from "../contract/time.ts";

/** Number of hours of usage that a key's gate keeps, including the current one. */
const USAGE_HOURS = 24;

export interface HourUsage {
  startsAt: number;
  /** Requests counted against the quota. */
  requests: number;
  /** Requests beyond the quota, answered 429. */
  refused: number;
  /** The most requests in one window. */
  busiest: number;
}

/**
 * Adds requests to their hour. Updates `hours` in place if the hour is already there.
 *
 * @param counts `busiest`: the requests in the window so far.
 * @returns the hours to keep, at most 24, oldest first.
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

/** The 24 hours up to that of `now`, oldest first, as shown; those without requests are zeros. */
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
