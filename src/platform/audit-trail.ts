import { z } from "@hono/zod-openapi";
import { WebhookId, WorkspaceId } from "../contract/fields.ts";
import { AUDIT_KEPT_DAYS, PAGE_LIMIT } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { openDirectory } from "../db/databases.ts";
import { listAuditEntries, listChanges } from "../workspaces/audit-trail.ts";
import { labelKeys } from "../workspaces/key-rows.ts";
import { ChangedFieldsView, WebhookChangeView } from "../workspaces/views.ts";
import { cursorOf, pageAfter, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";
import { findWebhook } from "./placements.ts";

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
  via: z.string().describe("rpc, https: and the id of the key, or portal"),
  result: z.string().describe("ok; a reason and a field, such as not_found: webhookId; or failed"),
  durationMs: z.int(),
  webhookId: z.string().nullable().describe("the webhook that it changed, if any"),
  before: ChangedFieldsView.nullable().describe(
    "the changed fields of that webhook, before the call",
  ),
  after: ChangedFieldsView.nullable().describe("the same fields, after the call"),
});

export const listAuditTrail = operation({
  about: `Lists the calls of these operations, and the changes that were made in the portal, in the last ${AUDIT_KEPT_DAYS} days, newest first, ${PAGE_LIMIT.max} per page; of one workspace, even if it is erased, or of all.`,
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
    await findWebhook(call, webhookId);
    const found = await listChanges(openDirectory(call.env), webhookId, pageAfter(cursor));
    const items = found.items.map(({ at, method, actor, via, result, before, after }) => ({
      at: isoTime(at),
      method,
      actor,
      via,
      result,
      before,
      after,
    }));
    return toPage("webhook_changes", { items, next: found.next });
  },
});
