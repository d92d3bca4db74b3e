import { fromBase64Url, toBase64Url } from "./bytes.ts";

/** A place in a list that is ordered newest first: what comes next is older than this. */
export interface Position {
  /** Unix milliseconds. */
  at: number;
  id: string;
}

const VERSION = 1;
const LONGEST = 512;

/** The opaque cursor for what follows `position` in `list`. */
export function encodeCursor(list: string, position: Position): string {
  const text = JSON.stringify([VERSION, list, position.at, position.id]);
  return toBase64Url(new TextEncoder().encode(text));
}

/** Where `cursor` points in `list`; `null` when it is no cursor of this list and version. */
export function decodeCursor(list: string, cursor: string): Position | null {
  if (cursor.length > LONGEST) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(
      fromBase64Url(cursor),
    );
    const [version, itsList, at, id, ...rest] = JSON.parse(text);
    const readable =
      version === VERSION &&
      itsList === list &&
      Number.isSafeInteger(at) &&
      typeof id === "string" &&
      rest.length === 0;
    return readable ? { at, id } : null;
  } catch {
    return null;
  }
}

/** The lists of the API, as their cursors name them. */
export const AUTOMATIONS_LIST = "automations";
export const LEADS_LIST = "leads";
export const RUNS_LIST = "runs";
export const WEBHOOKS_LIST = "webhooks";

/** The list of one automation's runs. */
export function runsListOf(automationId: string): string {
  return `automations/${automationId}/runs`;
}

/** Those of the Platform door. */
export const WORKSPACES_LIST = "workspaces";
export const API_KEYS_LIST = "api_keys";
export const DELIVERIES_LIST = "deliveries";
