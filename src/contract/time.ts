/** The instant `ms` (Unix, milliseconds) as the contract writes it: ISO 8601, UTC, suffix `Z`. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
