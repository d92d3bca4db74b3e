import { z } from "@hono/zod-openapi";
import { KeyId, WorkspaceId } from "../contract/fields.ts";
import { randomId } from "../contract/ids.ts";
import { InputError } from "../contract/input.ts";
import { API_KEYS_MAX, KEY_NAME_MAX_LENGTH, KEY_OVERLAP_MAX_SECONDS } from "../contract/limits.ts";
import { DAY_MS, HOUR_MS, isoTime, isoTimeOrNull } from "../contract/time.ts";
import { commit, withoutRetries } from "../db/client.ts";
import { openDirectory } from "../db/databases.ts";
import { label } from "../primitives/text.ts";
import { callWithRetries, invalidateKey } from "../rate-limit/gates.ts";
import { hashApiKey, mintApiKey } from "../rate-limit/key-text.ts";
import { type HourUsage, USAGE_HOURS } from "../rate-limit/window.ts";
import { listCreatedBy } from "../subscriptions/subscriptions.ts";
import {
  type GatedKey,
  insertApiKey,
  listStoredKeys,
  revokeKey,
  rotateKey,
  type StoredKey,
  updateQuota,
} from "../workspaces/key-rows.ts";
import { findPlacement, type Placement, refuseMissing } from "../workspaces/placement.ts";
import { ApiKeyView } from "../workspaces/views.ts";
import { refuseWrites } from "../workspaces/write-guard.ts";
import { cursorOf, integer, Nothing, pageAfter, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectWorkspace } from "./placements.ts";

/* Operations on API keys. All keys are in the directory. */

/** Number of keys on a page. It is small, because showing a key takes a call of its gate. */
const KEYS_AT_ONCE = 20;

const workspaceId = "wks_…";
const keyId = "key_…";
const Quota = integer(1, 1_000_000);
const NewKey = z.object({ keyId: KeyId, apiKey: z.string() });

export const createApiKey = operation({
  about: `Creates an API key for a workspace, which can have up to ${API_KEYS_MAX} keys that are neither revoked nor expired. The key is shown only once.`,
  input: z.strictObject({
    workspaceId: WorkspaceId,
    name: label(KEY_NAME_MAX_LENGTH)
      .min(1)
      .nullish()
      .describe("what it is for, such as CRM import"),
    requestsPerWindow: Quota.nullish().describe(
      "the key's own rate limit; default: QUOTA_REQUESTS",
    ),
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

/** Generates a key for the caller, with its stored form: its SHA-256 and last four characters. */
async function makeKey(env: Env) {
  const made = { keyId: randomId("key"), apiKey: await mintApiKey(env.API_KEY_CHECKSUM_KEYS) };
  const lastFour = made.apiKey.slice(-4);
  return { made, stored: { id: made.keyId, keyHash: await hashApiKey(made.apiKey), lastFour } };
}

export const updateApiKey = operation({
  about:
    "Changes a live API key's rate limit. If it was used up, 429 may go on for 2 s after it is raised.",
  input: z.strictObject({
    keyId: KeyId,
    requestsPerWindow: Quota.nullable().describe("the key's own rate limit; null: QUOTA_REQUESTS"),
  }),
  output: Nothing,
  examples: [{ keyId, requestsPerWindow: 6000 }],
  async run({ env, note }, { keyId, requestsPerWindow }) {
    // Not retried: a second try could undo a change that another call made in between.
    const directory = withoutRetries(openDirectory(env));
    const [updated] = await updateQuota(directory, keyId, requestsPerWindow, Date.now());
    if (!updated) throw new InputError("keyId", "no such key, or it is revoked or expired");
    note?.(updated.workspaceId);
    // The gate of the key applies the new rate limit once this returns.
    await invalidateKey(env, updated);
    return {};
  },
});

export const rollApiKey = operation({
  about:
    "Rotates an API key: creates one of the same name and rate limit; both are valid until the overlap ends. The new one is shown only once. A key can be rotated once; the next time, rotate the new one.",
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
    const rolled = rotateKey(keyId, stored, now + overlapSeconds * 1000, now);
    const { old, isRevoked, refusal } = await commit(openDirectory(env), rolled);
    note?.(old.workspaceId);
    // The gate of the old key must know when the key ends before this operation returns. An earlier call may have
    // rotated the key, and failed before it told the gate.
    if (isRevoked) await endKey(env, old, now);
    else await invalidateKey(env, old);
    if (refusal) throw refusal;
    return made;
  },
});

export const revokeApiKey = operation({
  about:
    "Revokes an API key for good, with immediate effect. Returns the webhooks that it created, which stay.",
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
    webhookIds: z.array(z.string()),
  }),
  examples: [{ keyId }, { apiKey: "key_live_…" }],
  async run({ env }, { keyId, apiKey }) {
    const key = keyId != null ? { id: keyId } : { keyHash: await hashApiKey(apiKey ?? "") };
    const now = Date.now();
    const [revoked] = await revokeKey(openDirectory(env), key, now);
    if (!revoked) throw new InputError(keyId != null ? "keyId" : "apiKey", "no such key");
    const { id, workspaceId } = revoked;
    const { db } = await endKey(env, revoked, now);
    return { keyId: id, workspaceId, webhookIds: await listCreatedBy(db, workspaceId, id) };
  },
});

/**
 * Ends a key that the directory has revoked. When this returns, the key is rejected everywhere, and even a request
 * that was admitted before writes nothing more.
 *
 * @returns where its workspace lives.
 */
async function endKey(env: Env, key: GatedKey, now: number): Promise<Placement> {
  const { id, workspaceId } = key;
  const placement = await findPlacement(env, workspaceId);
  const refused = commit(placement.db, refuseWrites(workspaceId, id, now));
  await Promise.all([invalidateKey(env, key), refused]);
  return placement;
}

export const listApiKeys = operation({
  about: `Lists a workspace's API keys, including revoked ones, with the requests of their last 24 h, newest key first, ${KEYS_AT_ONCE} per page.`,
  input: z.strictObject({ workspaceId: WorkspaceId, cursor: cursorOf("api_keys") }),
  output: pageOf(ApiKeyView),
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId, cursor }) {
    await expectWorkspace(env, workspaceId);
    const request = pageAfter(cursor, KEYS_AT_ONCE);
    const { items, next } = await listStoredKeys(openDirectory(env), workspaceId, request);
    return toPage("api_keys", {
      items: await Promise.all(items.map((key) => show(env, key))),
      next,
    });
  },
});

async function show(env: Env, key: StoredKey): Promise<ApiKeyView> {
  const { keyHash, lastUsedAt } = key;
  // A key that was never used has no gate, and a call would create it.
  const hours =
    lastUsedAt === null
      ? []
      : await callWithRetries(env, env.KEY_GATE, keyHash, (gate) => gate.usage());
  return {
    keyId: key.id,
    name: key.name,
    lastFour: key.lastFour,
    createdAt: isoTime(key.createdAt),
    lastUsedAt: isoTimeOrNull(lastUsedAt),
    revokedAt: isoTimeOrNull(key.revokedAt),
    expiresAt: isoTimeOrNull(key.expiresAt),
    requestsPerWindow: key.requestsPerWindow ?? Number(env.QUOTA_REQUESTS),
    windowSeconds: Number(env.QUOTA_WINDOW_SECONDS),
    hours: lastHours(hours, Date.now()),
  };
}

/** Returns the last 24 hours, oldest first, the hour of `now` included. An hour without requests has zeros. */
function lastHours(hours: readonly HourUsage[], now: number) {
  const current = Math.floor(now / HOUR_MS) * HOUR_MS;
  return Array.from({ length: USAGE_HOURS }, (_, i) => {
    const startsAt = current - (USAGE_HOURS - 1 - i) * HOUR_MS;
    const {
      requests = 0,
      refused = 0,
      busiest = 0,
    } = hours.find((known) => known.startsAt === startsAt) ?? {};
    return { hour: isoTime(startsAt).replace(".000", ""), requests, refused, busiest };
  });
}
