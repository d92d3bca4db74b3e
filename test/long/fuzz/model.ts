/** One item of a list: its time, as the list is ordered by it, and how the API shows it. */
export interface Item {
  at: number;
  id: string;
  /** The platform's own identifier, where there is one. */
  reference?: string;
  shown: Record<string, unknown>;
}

export interface Workspace {
  workspaceId: string;
  granted: boolean;
  automations: Item[];
  leads: Item[];
  runs: Item[];
  webhooks: Item[];
  /** Identifiers of subscriptions that are no more. */
  deleted: string[];
}

/** What a gate counts; `resetSeconds` as last told. */
export interface Window {
  limit: number;
  used: number;
  resetSeconds: number;
}

export interface Key {
  keyId: string;
  apiKey: string;
  workspace: Workspace;
  revoked: boolean;
  window: Window;
}

/** A cursor that the service gave, and where it must lead: behind the item (`at`, `id`). */
export interface Cursor {
  list: string;
  text: string;
  at: number;
  id: string;
}

/** A list that is being paged through, while others change it. */
export interface Walk {
  key: Key;
  list: string;
  /** What was there when it began, and still is. */
  there: Set<string>;
  seen: string[];
  cursor: Cursor | null;
}

/** What the gate should say to one request. */
export interface Verdict {
  refused: "invalid_api_key" | "workspace_access_denied" | "rate_limited" | null;
  limit: number;
  remaining: number;
}

/** What the service should hold after the calls that were made. */
export class Model {
  readonly workspaces: Workspace[];
  readonly keys: Key[] = [];
  /** The failures of the address that all requests come from. */
  readonly address: Window;
  readonly cursors: Cursor[] = [];
  walk: Walk | null = null;
  /** Orders what is created without a time that the API shows. */
  clock = 0;

  /** Starts from empty workspaces without keys. */
  constructor(workspaceIds: string[], failures: number) {
    this.address = openWindow(failures);
    this.workspaces = workspaceIds.map((workspaceId) => ({
      workspaceId,
      granted: true,
      automations: [],
      leads: [],
      runs: [],
      webhooks: [],
      deleted: [],
    }));
  }

  /** Counts one request with `key`, and says what becomes of it at the gate. */
  admit(key: Key): Verdict {
    if (key.revoked) return count(this.address, "invalid_api_key");
    const verdict = count(key.window, null);
    return key.workspace.granted ? verdict : { ...verdict, refused: "workspace_access_denied" };
  }

  /** Takes note that items are gone: a walk need not show them, and may show new ones of that name. */
  forget(ids: Set<string>): void {
    if (!this.walk) return;
    this.walk.seen = this.walk.seen.filter((id) => !ids.has(id));
    for (const id of ids) this.walk.there.delete(id);
  }
}

/** A key of which nothing is used. */
export function newKey(
  workspace: Workspace,
  { keyId, apiKey }: { keyId: string; apiKey: string },
  requests: number,
): Key {
  return { keyId, apiKey, workspace, revoked: false, window: openWindow(requests) };
}

function openWindow(limit: number): Window {
  return { limit, used: 0, resetSeconds: Number.POSITIVE_INFINITY };
}

function count(window: Window, refused: Verdict["refused"]): Verdict {
  const { limit } = window;
  if (window.used >= limit) return { refused: "rate_limited", limit, remaining: 0 };
  window.used++;
  return { refused, limit, remaining: limit - window.used };
}

/** The lists of a workspace, as their paths behind `/v1/` name them. */
export function listsOf({ automations }: Workspace): string[] {
  const ofAutomations = automations.map(({ id }) => `automations/${id}/runs`);
  return ["automations", "leads", "runs", "webhooks", ...ofAutomations];
}

/** What a workspace sees in a list, newest first; null when it has no such list. */
export function itemsIn(workspace: Workspace, list: string): Item[] | null {
  const [kind, automationId] = list.split("/");
  if (automationId === undefined)
    return newestFirst(workspace[kind as "automations" | "leads" | "runs" | "webhooks"]);
  if (!workspace.automations.some(({ id }) => id === automationId)) return null;
  return newestFirst(workspace.runs.filter(({ shown }) => shown.automation_id === automationId));
}

/** Whether an item stands behind a place in a list. */
export function isBehind(item: Item, place: { at: number; id: string }): boolean {
  return item.at < place.at || (item.at === place.at && item.id < place.id);
}

function newestFirst(items: Item[]): Item[] {
  return items.toSorted((a, b) => (isBehind(a, b) ? 1 : -1));
}
