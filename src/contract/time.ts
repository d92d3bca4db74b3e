import { z } from "zod";

/** The instant `ms` (Unix, milliseconds) as the contract writes it: ISO 8601, UTC, suffix `Z`. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** The public shape of an instant. */
export const IsoTime = z.iso
  .datetime()
  .meta({ description: "ISO 8601, UTC, suffix `Z`.", example: "2026-03-14T09:26:53.589Z" });
