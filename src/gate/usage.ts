import { USAGE_HOURS } from "../contract/limits.ts";

const HOUR_MS = 3_600_000;

/** The requests of one key in one hour. */
export interface HourUsage {
  /** When the hour begins: Unix milliseconds. */
  startsAt: number;
  /** Those that took from the quota. */
  requests: number;
  /** Those beyond it, answered 429. */
  refused: number;
}

/**
 * Counts requests into their hour, in place where it is there already.
 *
 * @param at when they were made: Unix milliseconds.
 * @returns the hours that are kept, at most 24, oldest first.
 */
export function countUsage(
  hours: HourUsage[],
  at: number,
  { requests = 0, refused = 0 }: { requests?: number; refused?: number },
): HourUsage[] {
  const startsAt = Math.floor(at / HOUR_MS) * HOUR_MS;
  const hour = hours.find((known) => known.startsAt === startsAt);
  if (hour) {
    hour.requests += requests;
    hour.refused += refused;
    return hours;
  }
  const all = [...hours, { startsAt, requests, refused }].sort((a, b) => a.startsAt - b.startsAt);
  return all.slice(-USAGE_HOURS);
}

/** The last 24 hours up to the one of `now`, oldest first; those without a request are there with zeros. */
export function lastHours(hours: readonly HourUsage[], now: number): HourUsage[] {
  const current = Math.floor(now / HOUR_MS) * HOUR_MS;
  return Array.from({ length: USAGE_HOURS }, (_, i) => {
    const startsAt = current - (USAGE_HOURS - 1 - i) * HOUR_MS;
    const known = hours.find((hour) => hour.startsAt === startsAt);
    return known ?? { startsAt, requests: 0, refused: 0 };
  });
}
