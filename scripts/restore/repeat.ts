import type { PlatformInput, PlatformMethod } from "../../src/platform/operations.ts";
import type { Compared } from "./rows.ts";
import { isNewer, type Row, type Tables } from "./tables.ts";

/** A call of the Platform API. */
export type PlatformCall = {
  [M in PlatformMethod]: { method: M; input: PlatformInput<M> };
}[PlatformMethod];

/**
 * Lists the calls of the Platform API to repeat, because they change more than a row: gates of keys drop the status
 * that they have cached, pending deliveries are cancelled, and personal data is erased.
 *
 * @param now Unix milliseconds.
 */
export function callsToRepeat(compared: Compared, now: number): PlatformCall[] {
  const { noted, found, placements, restoredTo } = compared;
  // Workspaces that live elsewhere may have rows here, which are out of date.
  const known = new Set(noted.workspaces.map(({ id }) => id));
  const isHere = ({ id, database }: Row) => database === null && known.has(id ?? null);
  const here = new Set(found.workspaces.filter(isHere).map(({ id }) => id));
  return [
    ...keyCalls(noted, found, now),
    ...placements.erased.map((workspaceId) => ({
      method: "eraseWorkspace" as const,
      input: { workspaceId },
    })),
    ...workspaceCalls(noted, found, here),
    ...subscriptionCalls(noted, found, here, restoredTo),
    ...erasureCalls(noted, here),
  ];
}

type Ids = Set<Row[string] | undefined>;

/**
 * Makes the calls that revoke keys again, and those that invalidate the gates of other keys. A gate that has read its
 * key while the database was as of then may have cached that the key is unknown, or where its workspace lived. One that
 * has read it since the erasure of its workspace has cached that it is unknown, and the workspace may stay.
 */
function keyCalls(noted: Tables, found: Tables, now: number): PlatformCall[] {
  const before = byId(noted.api_keys);
  const named = new Set(
    noted.audit_trail.flatMap(({ method, workspace_id, ids }): Row[string][] =>
      method === "moveWorkspace" ? [workspace_id ?? null] : JSON.parse(String(ids)),
    ),
  );
  return found.api_keys.flatMap((key): PlatformCall[] => {
    if (key.revoked_at !== null) return [];
    const was = before.get(key.id) ?? key;
    const hasExpired = was.expires_at !== null && Number(was.expires_at) <= now;
    if (was.revoked_at !== null || hasExpired)
      return [{ method: "revokeApiKey", input: { keyId: String(key.id) } }];
    const isNamed = [key.id, key.workspace_id].some((id) => named.has(id ?? null));
    return isNamed || was === key ? [invalidateGate(was)] : [];
  });
}

/** Gives a key the rate limit that it has, which invalidates its gate. */
function invalidateGate(key: Row): PlatformCall {
  const requestsPerWindow = key.requests_per_window as number | null;
  return { method: "updateApiKey", input: { keyId: String(key.id), requestsPerWindow } };
}

function workspaceCalls(noted: Tables, found: Tables, here: Ids): PlatformCall[] {
  const before = byId(noted.workspaces);
  return found.workspaces.flatMap((workspace): PlatformCall[] => {
    const was = before.get(workspace.id);
    if (!was || !here.has(workspace.id)) return [];
    const calls: PlatformCall[] = [];
    const workspaceId = String(workspace.id);
    if (was.access_granted !== workspace.access_granted)
      calls.push({
        method: "setWorkspaceAccess",
        input: { workspaceId, granted: was.access_granted === 1 },
      });
    if (Number(was.sessions_not_before) > Number(workspace.sessions_not_before))
      calls.push({ method: "endPortalSessions", input: { workspaceId } });
    return calls;
  });
}

function subscriptionCalls(
  noted: Tables,
  found: Tables,
  here: Ids,
  restoredTo: number,
): PlatformCall[] {
  const before = byId(noted.subscriptions);
  return found.subscriptions.flatMap((subscription): PlatformCall[] => {
    if (subscription.deleted_at !== null || !here.has(subscription.workspace_id)) return [];
    const webhookId = String(subscription.id);
    const was = before.get(subscription.id);
    if (!was && isNewer(subscription, restoredTo)) return [];
    if (!was || was.deleted_at !== null) return [{ method: "deleteWebhook", input: { webhookId } }];
    const calls: PlatformCall[] = [];
    if (was.events !== subscription.events)
      calls.push({
        method: "updateWebhook",
        input: { webhookId, events: JSON.parse(String(was.events)) },
      });
    const [wasDisabled, isDisabled] = [was.disabled_at !== null, subscription.disabled_at !== null];
    if (wasDisabled && !isDisabled) calls.push({ method: "disableWebhook", input: { webhookId } });
    if (!wasDisabled && isDisabled) calls.push({ method: "enableWebhook", input: { webhookId } });
    return calls;
  });
}

/** Makes the calls that erase and remove records again, from the audit trail. */
function erasureCalls(noted: Tables, here: Ids): PlatformCall[] {
  return noted.audit_trail.flatMap(({ method, workspace_id, ids, result }): PlatformCall[] => {
    // A failed call may have had its effect. A rejected one had none.
    const mayBeDone = result === "ok" || result === "failed";
    if (!mayBeDone || !here.has(workspace_id)) return [];
    const workspaceId = String(workspace_id);
    const named: string[] = JSON.parse(String(ids));
    const leads = named.filter((id) => id.startsWith("lea_"));
    const automations = named.filter((id) => id.startsWith("aut_"));
    if (method === "eraseLeads" && leads.length > 0)
      return [{ method, input: { workspaceId, ids: leads } }];
    if (method === "removeAutomations" && automations.length > 0)
      return [{ method, input: { workspaceId, ids: automations } }];
    return [];
  });
}

const byId = (rows: Row[]) => new Map(rows.map((row) => [row.id, row]));
