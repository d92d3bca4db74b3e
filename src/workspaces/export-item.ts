import type { ExportKind } from "./manifest.ts";

/** A JSON value. Objects are left open: a recursive type would not terminate as an RPC result. */
export type Json = string | number | boolean | null | object;

/** One stored row about a workspace; times are ISO 8601. Rows that belong to another one follow it. */
export interface ExportItem {
  kind: ExportKind;
  [field: string]: Json;
}
