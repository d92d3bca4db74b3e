import type { z } from "@hono/zod-openapi";
import {
  createApiKey,
  listApiKeys,
  listKeyUsage,
  revokeApiKey,
  rollApiKey,
  updateApiKey,
} from "./api-keys.ts";
import { databases, moveWorkspace } from "./databases.ts";
import { backlog, ledger, listDeliveries, readDelivery, redeliver } from "./deliveries.ts";
import { eraseLeads, eraseWorkspace, exportWorkspace } from "./personal-data.ts";
import { recordAutomations, recordLeads, recordRuns, removeAutomations } from "./records.ts";
import {
  deleteWebhook,
  disableWebhook,
  enableWebhook,
  listWebhooks,
  readWebhook,
  resealSecrets,
  rotateWebhookSecret,
  sendTestEvent,
} from "./webhooks.ts";
import {
  createPortalLink,
  createWorkspace,
  listWorkspaces,
  readWorkspace,
  setWorkspaceAccess,
  updateWorkspace,
} from "./workspaces.ts";

/** All operations of the Platform door, in the order in which help and documentation show them. */
export const OPERATIONS = [
  createWorkspace,
  readWorkspace,
  updateWorkspace,
  listWorkspaces,
  setWorkspaceAccess,
  createPortalLink,
  createApiKey,
  updateApiKey,
  rollApiKey,
  revokeApiKey,
  listApiKeys,
  listKeyUsage,
  recordAutomations,
  removeAutomations,
  recordLeads,
  recordRuns,
  listWebhooks,
  readWebhook,
  enableWebhook,
  disableWebhook,
  deleteWebhook,
  rotateWebhookSecret,
  sendTestEvent,
  listDeliveries,
  readDelivery,
  redeliver,
  backlog,
  ledger,
  exportWorkspace,
  eraseLeads,
  eraseWorkspace,
  databases,
  moveWorkspace,
  resealSecrets,
] as const;

type Named<M> = Extract<(typeof OPERATIONS)[number], { name: M }>;

/** The name of an operation. */
export type PlatformMethod = (typeof OPERATIONS)[number]["name"];
/** The input of an operation, as the caller writes it. */
export type PlatformInput<M extends PlatformMethod> = z.input<Named<M>["input"]>;
/** What an operation answers. */
export type PlatformOutput<M extends PlatformMethod> = z.output<Named<M>["output"]>;

/** The operation with this name; undefined if there is none. */
export function findOperation(name: string) {
  return OPERATIONS.find((each) => each.name === name);
}
