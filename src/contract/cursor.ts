import { fromBase64Url, toBase64Url } from "../primitives/bytes.ts";

/** A position in a list that is sorted newest first. The next item is older than this. */
export interface Position {
  /** Unix milliseconds. */
  at: number;
  id: string;
}

/** The lists with pages, by the names that cursors contain. */
export type ListName =
  | ("automations" | "leads" | "runs" | "webhooks" | `automations/${string}/runs`)
  // Lists of the Platform API.
  | (
      | "workspaces"
      | "api_keys"
      | "deliveries"
      | "failures"
      | "redelivery"
      | "found_leads"
      | "audit_trail"
      | "webhook_changes"
      | "workspace_changes"
      | "export"
    );

const VERSION = 1;
const LONGEST = 512;

/** Makes the opaque cursor for the items after `position` in `list`. */
export function encodeCursor(list: ListName, position: Position): string {
  return encodeValues(list, [position.at, position.id]);
}

/** Decodes the position in `cursor`; null if it is not a cursor of this list and version. */
export function decodeCursor(list: ListName, cursor: string): Position | null {
  const [at, id, ...rest] = decodeValues(list, cursor) ?? [];
  const readable = Number.isSafeInteger(at) && typeof id === "string" && rest.length === 0;
  return readable ? { at: at as number, id } : null;
}

/** Makes an opaque cursor of values other than a `Position`. */
export function encodeValues(list: ListName, values: (string | number)[]): string {
  return toBase64Url(new TextEncoder().encode(JSON.stringify([VERSION, list, ...values])));
}

/** Decodes the values of a cursor; null if it is not a cursor of this list and version. */
export function decodeValues(list: ListName, cursor: string): unknown[] | null {
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
