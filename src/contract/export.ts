/** The kinds of items in an export, in its order; what belongs to an item follows it. */
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

/** A value of JSON; what it holds is left open, or the types of an RPC answer would never end. */
export type Json = string | number | boolean | null | object;

/** One row of what is kept about a workspace; its times are ISO 8601. */
export interface ExportItem {
  kind: ExportKind;
  [field: string]: Json;
}
