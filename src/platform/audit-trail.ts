import { z } from "@hono/zod-openapi";
import { WorkspaceId } from "../contract/fields.ts";
import { AUDIT_KEPT_DAYS, PAGE_LIMIT } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { openDirectory } from "../db/databases.ts";
import { labelKeys } from "../workspaces/api-keys.ts";
import { listAuditEntries } from "../workspaces/audit-trail.ts";
import { cursorOf, pageAfter, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";

const AuditEntryView = z.object({
  at: z.string(),
  method: z.string(),
  workspaceId: z.string().nullable().describe("the one it was about; null for none, or several"),
  ids: z.array(z.string()).describe("the others that the call named, or that it created"),
  keys: z
    .record(z.string(), z.string())
    .describe("the API keys among them that still exist, by id: name and last characters"),
  actor: z.string().nullable().describe("as the caller gave it"),
  via: z.string().describe("rpc, or https: and the id of the key"),
  result: z.string().describe("ok; a reason and a field, such as not_found: webhookId; or failed"),
  durationMs: z.int(),
});

export const listAuditTrail = operation({
  about: `Lists the calls of these operations in the last ${AUDIT_KEPT_DAYS} days, newest first, ${PAGE_LIMIT.max} per page; of one workspace, even if it is erased, or of all.`,
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
    const items = found.items.map(({ id, at, ...entry }) => ({
      at: isoTime(at),
      ...entry,
      keys: Object.fromEntries(
        Object.entries(labels).filter(([keyId]) => entry.ids.includes(keyId)),
      ),
    }));
    return toPage("audit_trail", { items, next: found.next });
  },
});
