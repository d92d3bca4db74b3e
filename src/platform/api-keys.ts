import { z } from "@hono/zod-openapi";
import { KeyId, WorkspaceId } from "../contract/fields.ts";
import { randomId } from "../contract/ids.ts";
import { InputError } from "../contract/input-error.ts";
import { KEY_NAME_MAX_LENGTH, KEY_OVERLAP_MAX_SECONDS, PAGE_LIMIT } from "../contract/limits.ts";
import { label } from "../contract/text.ts";
import { DAY_MS, isoTime } from "../contract/time.ts";
import { commit } from "../db/client.ts";
import { openDirectory } from "../db/databases.ts";
import { logError } from "../log.ts";
import { hashApiKey, mintApiKey } from "../quota/api-key.ts";
import { callObject } from "../quota/call.ts";
import { forgetKey } from "../quota/forget.ts";
import { type HourUsage, lastHours } from "../quota/usage.ts";
import { refuseMissing } from "../records/recording/references.ts";
import { listCreatedBy } from "../webhooks/subscriptions.ts";
import { KeyUsage } from "../webhooks/views.ts";
import {
  ApiKeyView,
  insertApiKey,
  listStoredKeys,
  revokeKey,
  rollKey,
  STANDING_MAX_AGE_MS,
  type StoredKey,
  toApiKeyView,
  updateQuota,
} from "../workspaces/api-keys.ts";
import { findPlacement } from "../workspaces/placement.ts";
import { cursorOf, integer, Nothing, pageAfter, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectWorkspace } from "./placements.ts";

/** Keys per page of the portal: showing the usage of one takes a call to its gate. */
const PORTAL_KEYS = 20;

/* API keys, all of which are in the directory. */

const workspaceId = "wks_…";
const keyId = "key_…";
const Quota = integer(1, 1_000_000);
const NewKey = z.object({ keyId: KeyId, apiKey: z.string() });

export const createApiKey = operation({
  about: "Creates an API key for a workspace. The key is shown only once.",
  input: z.strictObject({
    workspaceId: WorkspaceId,
    name: label(KEY_NAME_MAX_LENGTH)
      .min(1)
      .nullish()
      .describe("what it is for, such as CRM import"),
    requestsPerWindow: Quota.nullish().describe("the key's own quota; default: QUOTA_REQUESTS"),
  }),
  output: NewKey,
  examples: [
    { workspaceId, name: "CRM import" },
    { workspaceId, requestsPerWindow: 6000 },
  ],
  async run({ env }, { workspaceId, name = null, requestsPerWindow }) {
    const { made, stored } = await makeKey(env);
    const quota = requestsPerWindow ?? null;
    const key = { ...stored, workspaceId, name, requestsPerWindow: quota, createdAt: Date.now() };
    await refuseMissing(commit(openDirectory(env), insertApiKey(key)));
    return made;
  },
});

/** A new key as its caller gets it, and what is stored of it: its SHA-256 and last four characters. */
async function makeKey(env: Env) {
  const made = { keyId: randomId("key"), apiKey: await mintApiKey(env.API_KEY_CHECKSUM_KEYS) };
  const lastFour = made.apiKey.slice(-4);
  return { made, stored: { id: made.keyId, keyHash: await hashApiKey(made.apiKey), lastFour } };
}

export const updateApiKey = operation({
  about: "Changes a live API key's quota, with immediate effect.",
  input: z.strictObject({
    keyId: KeyId,
    requestsPerWindow: Quota.nullable().describe("the key's own quota; null: QUOTA_REQUESTS"),
  }),
  output: Nothing,
  examples: [{ keyId, requestsPerWindow: 6000 }],
  async run({ env, note }, { keyId, requestsPerWindow }) {
    const [updated] = await updateQuota(openDirectory(env), keyId, requestsPerWindow, Date.now());
    if (!updated) throw new InputError("keyId", "no such key, or it is revoked or expired");
    note?.(updated.workspaceId);
    // When this returns, its gate applies the new quota.
    await forgetKey(env, updated);
    return {};
  },
});

export const rollApiKey = operation({
  about:
    "Replaces an API key by one with the same name and quota; both are valid until the overlap ends. A key can be rolled once. The new one is shown only once.",
  input: z.strictObject({
    keyId: KeyId,
    overlapSeconds: integer(0, KEY_OVERLAP_MAX_SECONDS).describe(
      "how long the old key stays valid; 0 revokes it immediately",
    ),
  }),
  output: NewKey,
  examples: [{ keyId, overlapSeconds: DAY_MS / 1000 }],
  async run({ env, note }, { keyId, overlapSeconds }) {
    const { made, stored } = await makeKey(env);
    const now = Date.now();
    const rolled = rollKey(keyId, stored, now + overlapSeconds * 1000, now);
    // When this returns, the gate of the old key knows when it expires.
    const old = await commit(openDirectory(env), rolled);
    note?.(old.workspaceId);
    await forgetKey(env, old);
    return made;
  },
});

export const revokeApiKey = operation({
  about:
    "Revokes an API key for good, with immediate effect. Returns the subscriptions that it created: they stay.",
  input: z
    .strictObject({
      keyId: KeyId.nullish(),
      apiKey: z.string().max(100).nullish().describe("instead of keyId, the key itself"),
    })
    .refine(
      ({ keyId, apiKey }) => (keyId == null) !== (apiKey == null),
      "expected either keyId or apiKey",
    ),
  output: z.object({
    keyId: KeyId,
    workspaceId: WorkspaceId,
    webhookIds: z
      .array(z.string())
      .nullable()
      .describe("null if they cannot be read now: call again"),
  }),
  examples: [{ keyId }, { apiKey: "key_live_…" }],
  async run({ env }, { keyId, apiKey }) {
    const key = keyId != null ? { id: keyId } : { keyHash: await hashApiKey(apiKey ?? "") };
    const [revoked] = await revokeKey(openDirectory(env), key, Date.now());
    if (!revoked) throw new InputError(keyId != null ? "keyId" : "apiKey", "no such key");
    // When this returns, the key is refused everywhere.
    await forgetKey(env, revoked);
    const { id, workspaceId } = revoked;
    return { keyId: id, workspaceId, webhookIds: await createdBy(env, id, workspaceId) };
  },
});

/** The subscriptions that a key created; null if they cannot be read, which does not undo a revocation. */
async function createdBy(env: Env, keyId: string, workspaceId: string): Promise<string[] | null> {
  try {
    const { db } = await findPlacement(env, workspaceId);
    return await listCreatedBy(db, workspaceId, keyId);
  } catch (error) {
    logError("webhooks_of_key_unknown", error, { keyId });
    return null;
  }
}

/**
 * The usage that a key's gate has counted; null if the gate fails, so that the other keys can still
 * be shown. The gate of a key that has not been used recently is not called, because the call would
 * create it.
 */
async function usageOf(
  env: Env,
  { id, keyHash, lastUsedAt }: StoredKey,
  now: number,
): Promise<HourUsage[] | null> {
  const isRecent = lastUsedAt !== null && lastUsedAt >= now - DAY_MS - STANDING_MAX_AGE_MS;
  if (!isRecent) return [];
  try {
    return await callObject(env, env.KEY_GATE, keyHash, (gate) => gate.usage());
  } catch (error) {
    logError("usage_unknown", error, { keyId: id });
    return null;
  }
}

export const listKeyUsage = operation({
  about: `Lists a workspace's API keys with the requests of their last 24 hours, newest key first, ${PORTAL_KEYS} per page.`,
  input: z.strictObject({ workspaceId: WorkspaceId, cursor: cursorOf("api_keys") }),
  output: pageOf(KeyUsage),
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId, cursor }) {
    await expectWorkspace(env, workspaceId);
    const request = pageAfter(cursor, PORTAL_KEYS);
    const { items, next } = await listStoredKeys(openDirectory(env), workspaceId, request);
    const now = Date.now();
    const shown = items.map(async (key) => {
      const usage = await usageOf(env, key, now);
      return {
        ...toApiKeyView(key),
        requestsPerWindow: key.requestsPerWindow ?? Number(env.QUOTA_REQUESTS),
        windowSeconds: Number(env.QUOTA_WINDOW_SECONDS),
        hours:
          usage &&
          lastHours(usage, now).map(({ startsAt, requests, refused, busiest }) => ({
            hour: isoTime(startsAt).replace(".000", ""),
            requests,
            refused,
            busiest,
          })),
      };
    });
    return toPage("api_keys", { items: await Promise.all(shown), next });
  },
});

export const listApiKeys = operation({
  about: `Lists a workspace's API keys, including revoked ones, newest first, ${PAGE_LIMIT.max} per page.`,
  input: z.strictObject({ workspaceId: WorkspaceId, cursor: cursorOf("api_keys") }),
  output: pageOf(ApiKeyView),
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId, cursor }) {
    await expectWorkspace(env, workspaceId);
    const found = await listStoredKeys(openDirectory(env), workspaceId, pageAfter(cursor));
    return toPage("api_keys", { items: found.items.map(toApiKeyView), next: found.next });
  },
});
