import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { invoke } from "../../../src/platform/invoke.ts";
import type { Operation } from "../../../src/platform/operation.ts";
import { OPERATIONS, type PlatformMethod } from "../../../src/platform/operations.ts";
import { Platform } from "../../support/api.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { exchange, linkToken, openOwed } from "../../support/portal.ts";

type Owed = Awaited<ReturnType<typeof openOwed>>;

/** A call whose effect another call may undo or replace. A second try of it would undo the other call. */
interface Undoable {
  call(owed: Owed): object;
  before?(owed: Owed): Promise<unknown>;
  /** The other call, between the two tries. */
  between(owed: Owed): Promise<unknown>;
  /** The effect of the other call. */
  seen(owed: Owed, between: unknown): Promise<unknown>;
}

const webhook = ({ webhookId }: Owed) => Platform.readWebhook({ webhookId });
const secretOf = async ({ webhookId }: Owed) =>
  WORKSPACE_DB.prepare("SELECT sealed_secret FROM subscriptions WHERE id = ?")
    .bind(webhookId)
    .first("sealed_secret");

async function cancelAll({ webhookId }: Owed): Promise<void> {
  await Platform.disableWebhook({ webhookId });
  await Platform.enableWebhook({ webhookId });
}

const UNDOABLE = {
  updateWorkspace: {
    call: ({ workspaceId }) => ({ workspaceId, name: "First", webhooksMax: 50 }),
    between: ({ workspaceId }) => Platform.updateWorkspace({ workspaceId, name: "Second" }),
    seen: async ({ workspaceId }) =>
      (await Platform.readWorkspace({ workspaceId })).name === "Second",
  },
  setWorkspaceAccess: {
    call: ({ workspaceId }) => ({ workspaceId, granted: false }),
    between: ({ workspaceId }) => Platform.setWorkspaceAccess({ workspaceId, granted: true }),
    seen: async ({ api }) => (await api.get("/v1/leads")).status === 200,
  },
  endPortalSessions: {
    call: ({ workspaceId }) => ({ workspaceId }),
    between: ({ workspaceId }) => linkToken(workspaceId),
    seen: async (_, token) => (await exchange(token as string)).status === 200,
  },
  updateApiKey: {
    call: ({ keyId }) => ({ keyId, requestsPerWindow: 100_000 }),
    between: ({ keyId }) => Platform.updateApiKey({ keyId, requestsPerWindow: 10 }),
    seen: async ({ workspaceId }) =>
      (await Platform.listApiKeys({ workspaceId })).items[0]?.requestsPerWindow === 10,
  },
  updateWebhook: {
    call: ({ webhookId }) => ({ webhookId, description: "First" }),
    between: ({ webhookId }) => Platform.updateWebhook({ webhookId, description: "Second" }),
    seen: async (owed) => (await webhook(owed)).description === "Second",
  },
  disableWebhook: {
    call: ({ webhookId }) => ({ webhookId }),
    between: ({ webhookId }) => Platform.enableWebhook({ webhookId }),
    seen: async (owed) => (await webhook(owed)).disabledAt === null,
  },
  enableWebhook: {
    before: ({ webhookId }) => Platform.disableWebhook({ webhookId }),
    call: ({ webhookId }) => ({ webhookId }),
    between: ({ webhookId }) => Platform.disableWebhook({ webhookId }),
    seen: async (owed) => (await webhook(owed)).disabledAt !== null,
  },
  rotateWebhookSecret: {
    call: ({ webhookId }) => ({ webhookId }),
    between: async (owed) => {
      await Platform.rotateWebhookSecret({ webhookId: owed.webhookId });
      return secretOf(owed);
    },
    seen: async (owed, secret) => (await secretOf(owed)) === secret,
  },
  endSecretOverlap: {
    call: ({ webhookId }) => ({ webhookId }),
    between: ({ webhookId }) => Platform.rotateWebhookSecret({ webhookId }),
    seen: async (owed) => (await webhook(owed)).overlapEndsAt !== null,
  },
  redeliver: {
    before: cancelAll,
    call: ({ webhookId, eventIds }) => ({ webhookId, eventIds }),
    between: cancelAll,
    seen: async ({ webhookId }) =>
      (await Platform.listDeliveries({ webhookId })).items.every(
        ({ state }) => state === "cancelled",
      ),
  },
} satisfies Partial<Record<PlatformMethod, Undoable>>;

const READS = "It writes nothing.";
const INSERTS = "It inserts rows under ids of its own, once.";
const FINAL = "Nothing undoes it.";
/** Why a second try of each other operation undoes nothing. */
const OTHERS: Record<Exclude<PlatformMethod, keyof typeof UNDOABLE>, string> = {
  createWorkspace: INSERTS,
  createApiKey: INSERTS,
  sendTestEvent: INSERTS,
  rollApiKey: "A key is rotated once, and the second try finds its own new key.",
  revokeApiKey: FINAL,
  deleteWebhook: FINAL,
  eraseLeads: FINAL,
  eraseWorkspace: FINAL,
  recordAutomations: "recording/retries.test.ts",
  removeAutomations: "recording/retries.test.ts",
  recordLeads: "recording/retries.test.ts",
  recordRuns: "recording/retries.test.ts",
  resealSecrets: "It replaces a data key only if that is still the one it has read.",
  moveWorkspace: "Its caller repeats it until it is done, so it begins again in any case.",
  readWorkspace: READS,
  listWorkspaces: READS,
  createPortalLink: READS,
  listApiKeys: READS,
  listWebhooks: READS,
  readWebhook: READS,
  listDeliveries: READS,
  listFailures: READS,
  countFailures: READS,
  listReplays: READS,
  stopReplay: "A replay ends once, and its second try finds no delivery to restore.",
  readDelivery: READS,
  ledger: READS,
  backlog: READS,
  findLeads: READS,
  exportWorkspace: READS,
  databases: READS,
  listAuditTrail: READS,
  listWebhookChanges: READS,
  listWorkspaceChanges: READS,
  health: READS,
};

test("Each operation is one of these", () => {
  const known = [...Object.keys(UNDOABLE), ...Object.keys(OTHERS)];
  expect(known.toSorted()).toEqual(Object.keys(OPERATIONS).toSorted());
});

test.each(Object.entries<Undoable>(UNDOABLE))(
  "After a lost reply, %s undoes no change that another call has made since",
  async (method, { before, call, between, seen }) => {
    const owed = await openOwed();
    await before?.(owed);
    let result: unknown;
    const DB = lossyDatabase("reply", async () => {
      result = await between(owed);
    });
    const context = { env: { ...env, DB }, ctx: createExecutionContext() };
    const operation: Operation = OPERATIONS[method as PlatformMethod];
    const called = invoke(method, operation, context, call(owed), "rpc");
    await expect(called).rejects.toThrow("Network connection lost");
    expect(await seen(owed, result)).toBe(true);
  },
);

test("After a restore, a repeated request is not shown a secret that was rotated since", async () => {
  const { api } = await openOwed();
  const create = () =>
    api.post<{ id: string; secret: string }>(
      "/v1/webhooks",
      { url: "https://ok-restored.example/", events: ["lead.created"] },
      { "Idempotency-Key": "k1" },
    );
  const { id: webhookId } = (await create()).body;
  const keyOf = WORKSPACE_DB.prepare("SELECT idempotency_key FROM subscriptions WHERE id = ?");
  const idempotencyKey = await keyOf.bind(webhookId).first("idempotency_key");
  const { secret } = await Platform.rotateWebhookSecret({ webhookId });
  // Time Travel brings the key back, and the restore puts the rotated secret back.
  await WORKSPACE_DB.prepare("UPDATE subscriptions SET idempotency_key = ? WHERE id = ?")
    .bind(idempotencyKey, webhookId)
    .run();
  const { status, body } = await create();
  expect([status, body.id === webhookId, body.secret === secret]).toEqual([201, false, false]);
});
