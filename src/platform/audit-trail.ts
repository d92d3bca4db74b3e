import { z } from "@hono/zod-openapi";
import { WebhookId, WorkspaceId } from "../contract/fields.ts";
import { AUDIT_KEPT_DAYS, PAGE_LIMIT } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import { openDirectory } from "../db/databases.ts";
import { findReplays } from "../replay/replays.ts";
import { findOwner, unknownWebhook } from "../subscriptions/subscriptions.ts";
import { listAuditEntries, listChanges, listHistory, VIA_API } from "../workspaces/audit-trail.ts";
import { labelKeys } from "../workspaces/key-rows.ts";
import { ChangedFieldsView, WebhookChangeView, WorkspaceChangeView } from "../workspaces/views.ts";
import { cursorOf, pageAfter, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectWorkspace, findWebhook } from "./placements.ts";

const AuditEntryView = z.object({
  at: z.string(),
  method: z.string(),
  workspaceId: z
    .string()
    .nullable()
    .describe("the workspace that the call was about; null for none or several"),
  ids: z.array(z.string()).describe("the other ids that the call named, or that it created"),
  keys: z
    .record(z.string(), z.string())
    .describe("by id, the name and last characters of the API keys among them that still exist"),
  actor: z.string().nullable().describe("as the caller gave it"),
  via: z
    .string()
    .describe("rpc, https: and the id of the key, portal, or api: and the id of the API key"),
  result: z.string().describe("ok; a reason and a field, such as not_found: webhookId; or failed"),
  durationMs: z.int(),
  webhookId: z.string().nullable().describe("the webhook that it changed, if any"),
  before: ChangedFieldsView.nullable().describe(
    "the changed fields of that webhook, before the call",
  ),
  after: ChangedFieldsView.nullable().describe("the same fields, after the call"),
});

export const listAuditTrail = operation({
  about: `Lists the audit trail of the last ${AUDIT_KEPT_DAYS} days, of all workspaces or of one, even an erased one: calls of operators and the platform, sessions and changes in the portal, and changes through the API. Newest first, ${PAGE_LIMIT.max} per page.`,
  input: z.strictObject({
    workspaceId: WorkspaceId.nullish(),
    cursor: cursorOf("audit_trail"),
  }),
  output: pageOf(AuditEntryView),
  examples: [{}, { workspaceId: "wks_…" }],
  async run({ env }, { workspaceId, cursor }) {
    const directory = openDirectory(env);
    const found = await listAuditEntries(directory, workspaceId ?? null, pageAfter(cursor));
    const labels = await labelKeys(
      directory,
      found.items.flatMap(({ ids }) => ids),
    );
    const items = found.items.map(({ id, at, lasting, ...entry }) => ({
      at: isoTime(at),
      ...entry,
      keys: Object.fromEntries(
        Object.entries(labels).filter(([keyId]) => entry.ids.includes(keyId)),
      ),
    }));
    return toPage("audit_trail", { items, next: found.next });
  },
});

export const listWebhookChanges = operation({
  about: `Lists who changed a webhook in the last ${AUDIT_KEPT_DAYS} days, with its fields before and after, newest first, ${PAGE_LIMIT.max} per page. Secrets and values of headers are not stored.`,
  input: z.strictObject({ webhookId: WebhookId, cursor: cursorOf("webhook_changes") }),
  output: pageOf(WebhookChangeView),
  examples: [{ webhookId: "whk_…" }],
  async run(call, { webhookId, cursor }) {
    const { db } = await findWebhook(call, webhookId);
    const owner = await findOwner(db, webhookId);
    if (!owner) throw unknownWebhook();
    const directory = openDirectory(call.env);
    const found = await listChanges(directory, owner.workspaceId, webhookId, pageAfter(cursor));
    const items = (await showChanges(directory, db, found.items)).map(
      ({ webhookId: _, ...change }) => change,
    );
    return toPage("webhook_changes", { items, next: found.next });
  },
});

export const listWorkspaceChanges = operation({
  about: `Lists the history of a workspace in the last ${AUDIT_KEPT_DAYS} days, newest first, ${PAGE_LIMIT.max} per page: changes of its webhooks, deleted ones included, of its API keys and access, and portal links and sessions.`,
  input: z.strictObject({ workspaceId: WorkspaceId, cursor: cursorOf("workspace_changes") }),
  output: pageOf(WorkspaceChangeView),
  examples: [{ workspaceId: "wks_…" }],
  async run({ env, placement }, { workspaceId, cursor }) {
    const { db } = placement ?? (await expectWorkspace(env, workspaceId));
    const directory = openDirectory(env);
    const found = await listHistory(directory, workspaceId, pageAfter(cursor));
    const items = await showChanges(directory, db, found.items);
    return toPage("workspace_changes", { items, next: found.next });
  },
});

type Entries = Awaited<ReturnType<typeof listChanges>>["items"];

/** Makes the views of changes, with the names of the API keys that made them, and the replays that they have begun. */
async function showChanges(
  directory: Database,
  db: Database,
  entries: Entries,
): Promise<WorkspaceChangeView[]> {
  const keyOf = (via: string) => via.slice(via.startsWith(VIA_API) ? VIA_API.length : via.length);
  const labels = await labelKeys(
    directory,
    entries.map(({ via }) => keyOf(via)),
  );
  const replays = await findReplays(db, entries);
  return entries.map(({ at, method, actor, via, result, webhookId, before, after }) => ({
    at: isoTime(at),
    method,
    actor,
    via,
    key: labels[keyOf(via)] ?? null,
    result,
    webhookId,
    before,
    after,
    replay: replays.get(after?.replayId ?? "") ?? null,
  }));
}
