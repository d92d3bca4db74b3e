/* Unless stated otherwise, a time that is a number is in Unix milliseconds. */

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** Formats Unix milliseconds as the contract requires: ISO 8601, UTC, with the suffix `Z`. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** Formats a time like `isoTime`; null stays null. */
export function isoTimeOrNull(time: number | null): string | null {
  return time === null ? null : isoTime(time);
}
