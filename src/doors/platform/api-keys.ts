import { API_KEYS_LIST } from "../../contract/cursor.ts";
import { randomId } from "../../contract/ids.ts";
import { InputError } from "../../contract/input-error.ts";
import { commit } from "../../db/client.ts";
import { openDirectory } from "../../db/databases.ts";
import { hashApiKey, mintApiKey } from "../../gate/api-key.ts";
import { forgetKey } from "../../gate/forget.ts";
import {
  insertApiKey,
  listApiKeys,
  revokeKey,
  rollKey,
  updateQuota,
} from "../../model/api-keys.ts";
import { refuseMissing } from "../../recording/references.ts";
import { expectWorkspace } from "./homes.ts";
import { type Methods, pageAfter, toPlatformPage } from "./methods.ts";

/** The methods that concern API keys. All keys are in the directory. */
export const apiKeyMethods = {
  /** Creates a key for a workspace. Only this answer contains it; we store its SHA-256. */
  async createApiKey({ env }, { workspaceId, requestsPerWindow }) {
    const keyId = randomId("key");
    const apiKey = await mintApiKey(env.API_KEY_CHECKSUM_KEYS);
    const key = {
      id: keyId,
      workspaceId,
      keyHash: await hashApiKey(apiKey),
      requestsPerWindow: requestsPerWindow ?? null,
      createdAt: Date.now(),
    };
    await refuseMissing(insertApiKey(openDirectory(env), key));
    return { keyId, apiKey };
  },

  /** Changes the quota of a live key. When this returns, its gate applies the new quota. */
  async updateApiKey({ env }, { keyId, requestsPerWindow }) {
    const [updated] = await updateQuota(openDirectory(env), keyId, requestsPerWindow, Date.now());
    if (!updated) throw new InputError("keyId: no such key, or it is revoked or expired");
    await forgetKey(env, updated);
    return {};
  },

  /**
   * Replaces a key by a new one for the same workspace with the same quota; only this answer contains
   * it. The old key is valid until the overlap ends; when this returns, its gate knows when that is. A
   * key can be rolled once.
   */
  async rollApiKey({ env }, { keyId: oldId, overlapSeconds }) {
    const keyId = randomId("key");
    const apiKey = await mintApiKey(env.API_KEY_CHECKSUM_KEYS);
    const key = { id: keyId, keyHash: await hashApiKey(apiKey) };
    const now = Date.now();
    const rolled = rollKey(oldId, key, now + overlapSeconds * 1000, now);
    await forgetKey(env, await commit(openDirectory(env), rolled));
    return { keyId, apiKey };
  },

  /** Revokes a key for good. When this returns, the key is refused everywhere. */
  async revokeApiKey({ env }, { keyId, apiKey }) {
    const key = keyId != null ? { id: keyId } : { keyHash: await hashApiKey(apiKey ?? "") };
    const [revoked] = await revokeKey(openDirectory(env), key, Date.now());
    if (!revoked) throw new InputError(`${keyId != null ? "keyId" : "apiKey"}: no such key`);
    await forgetKey(env, revoked);
    return {};
  },

  /** Lists the keys of a workspace, newest first, including revoked ones. */
  async listApiKeys({ env }, { workspaceId, cursor }) {
    await expectWorkspace(env, workspaceId);
    const found = await listApiKeys(openDirectory(env), workspaceId, pageAfter(cursor));
    return toPlatformPage(API_KEYS_LIST, found);
  },
} satisfies Partial<Methods>;
