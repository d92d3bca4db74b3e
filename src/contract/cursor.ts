import { fromBase64Url, toBase64Url } from "./bytes.ts";

/** A position in a list sorted newest first: the next item is older than this. */
export interface Position {
  /** Unix milliseconds. */
  at: number;
  id: string;
}

const VERSION = 1;
const LONGEST = 512;

/** The opaque cursor for the items after `position` in `list`. */
export function encodeCursor(list: string, position: Position): string {
  return encodeValues(list, [position.at, position.id]);
}

/** The position that `cursor` encodes; `null` if it is not a cursor of this list and version. */
export function decodeCursor(list: string, cursor: string): Position | null {
  const [at, id, ...rest] = decodeValues(list, cursor) ?? [];
  const readable = Number.isSafeInteger(at) && typeof id === "string" && rest.length === 0;
  return readable ? { at: at as number, id } : null;
}

/** An opaque cursor for values other than a `Position`. */
export function encodeValues(list: string, values: (string | number)[]): string {
  return toBase64Url(new TextEncoder().encode(JSON.stringify([VERSION, list, ...values])));
}

/** The values of a cursor; `null` if it is not a cursor of this list and version. */
export function decodeValues(list: string, cursor: string): unknown[] | null {
  if (cursor.length > LONGEST) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(
      fromBase64Url(cursor),
    );
    const [version, itsList, ...values] = JSON.parse(text);
    return version === VERSION && itsList === list ? values : null;
  } catch {
    return null;
  }
}

/** The lists of the API, by the names their cursors contain. */
export const AUTOMATIONS_LIST = "automations";
export const LEADS_LIST = "leads";
export const RUNS_LIST = "runs";
export const WEBHOOKS_LIST = "webhooks";

/** The list of one automation's runs. */
export function runsListOf(automationId: string): string {
  return `automations/${automationId}/runs`;
}

/** The lists of the Platform API. */
export const WORKSPACES_LIST = "workspaces";
export const API_KEYS_LIST = "api_keys";
export const DELIVERIES_LIST = "deliveries";
export const FOUND_LEADS_LIST = "found_leads";
export const AUDIT_TRAIL_LIST = "audit_trail";
export const EXPORT_LIST = "export";
