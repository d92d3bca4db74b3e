/* Unless stated otherwise, a time that is a number is in Unix milliseconds. */

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/*
 * The first and the last time that common languages can hold in every time zone. Python and .NET end with the years 1
 * and 9999, and a local time may be a day off.
 */
export const EARLIEST_TIME_MS = Date.parse("0001-01-02T00:00:00.000Z");
export const LATEST_TIME_MS = Date.parse("9999-12-30T23:59:59.999Z");

/** Formats Unix milliseconds as the contract requires: ISO 8601, UTC, with the suffix `Z`. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** Formats a time like `isoTime`; null stays null. */
export function isoTimeOrNull(time: number | null): string | null {
  return time === null ? null : isoTime(time);
}

/** Returns the UTC day of a time, such as `2026-11-28`. */
export function dayOf(time: number): string {
  return isoTime(time).slice(0, 10);
}
