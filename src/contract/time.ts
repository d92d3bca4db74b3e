/** Formats Unix milliseconds as the contract requires: ISO 8601, UTC, with the suffix `Z`. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
