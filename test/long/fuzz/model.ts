/** One item of a list: the time it is sorted by, and how the API shows it. */
export interface Item {
  at: number;
  id: string;
  /** The platform's own identifier, if there is one. */
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
  /** Ids of subscriptions that no longer exist. */
  deleted: string[];
}

/** What a gate counts; `resetSeconds` as last reported. */
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

/** A cursor from the service, and where it must lead: behind the item (`at`, `id`). */
export interface Cursor {
  list: string;
  text: string;
  at: number;
  id: string;
}

/** A list that is being paged through while others change it. */
export interface Walk {
  key: Key;
  list: string;
  /** What existed when the walk began, and still does. */
  there: Set<string>;
  seen: string[];
  cursor: Cursor | null;
}

/** The expected verdict of the gate on one request. */
export interface Verdict {
  refused: "invalid_api_key" | "workspace_access_denied" | "rate_limited" | null;
  limit: number;
  remaining: number;
}

/** The expected state of the service after the calls so far. */
export class Model {
  readonly workspaces: Workspace[];
  readonly keys: Key[] = [];
  /** The failures of the address that all requests come from. */
  readonly address: Window;
  readonly cursors: Cursor[] = [];
  walk: Walk | null = null;
  /** Orders items whose creation time the API does not show. */
  clock = 0;

  /** Starts with empty workspaces without keys. */
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

  /** Counts one request with `key`, and returns the gate's expected verdict. */
  admit(key: Key): Verdict {
    if (key.revoked) return count(this.address, "invalid_api_key");
    const verdict = count(key.window, null);
    return key.workspace.granted ? verdict : { ...verdict, refused: "workspace_access_denied" };
  }

  /** Records that items are gone: a walk need not show them, and may show new ones with that id. */
  forget(ids: Set<string>): void {
    if (!this.walk) return;
    this.walk.seen = this.walk.seen.filter((id) => !ids.has(id));
    for (const id of ids) this.walk.there.delete(id);
  }
}

/** An unused key. */
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

/** The lists of a workspace, by their paths under `/v1/`. */
export function listsOf({ automations }: Workspace): string[] {
  const ofAutomations = automations.map(({ id }) => `automations/${id}/runs`);
  return ["automations", "leads", "runs", "webhooks", ...ofAutomations];
}

/** What a workspace sees in a list, newest first; null if it has no such list. */
export function itemsIn(workspace: Workspace, list: string): Item[] | null {
  const [kind, automationId] = list.split("/");
  if (automationId === undefined)
    return newestFirst(workspace[kind as "automations" | "leads" | "runs" | "webhooks"]);
  if (!workspace.automations.some(({ id }) => id === automationId)) return null;
  return newestFirst(workspace.runs.filter(({ shown }) => shown.automation_id === automationId));
}

/** Whether an item comes after a position in a list. */
export function isBehind(item: Item, place: { at: number; id: string }): boolean {
  return item.at < place.at || (item.at === place.at && item.id < place.id);
}

function newestFirst(items: Item[]): Item[] {
  return items.toSorted((a, b) => (isBehind(a, b) ? 1 : -1));
}
