/** The kinds of items in an export, in order; nested items follow the one they belong to. */
export const EXPORT_KINDS = [
  "workspace",
  "api_key",
  "webhook",
  "webhook_secret",
  "automation",
  "lead",
  "run",
  "event",
  "delivery",
  "attempt",
  "notice",
  "email",
] as const;

export type ExportKind = (typeof EXPORT_KINDS)[number];

/**
 * A JSON value. Objects are left open, because a recursive type would not terminate as an RPC
 * result.
 */
export type Json = string | number | boolean | null | object;

/** One stored row about a workspace; times are ISO 8601. */
export interface ExportItem {
  kind: ExportKind;
  [field: string]: Json;
}
