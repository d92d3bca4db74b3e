import type { StoredKey } from "../workspaces/key-rows.ts";
import { callObject } from "./call.ts";
import { recentRefusals } from "./isolate-cache.ts";

/**
 * Invalidates the key status that the gate of a key has cached. A key that was never used has no gate. Other isolates
 * that have just cached a refusal of the key may repeat it, with 429 or 403, for up to two more seconds.
 */
export async function invalidateKey(
  env: Env,
  { keyHash, lastUsedAt }: Pick<StoredKey, "keyHash" | "lastUsedAt">,
): Promise<void> {
  if (lastUsedAt === null) return;
  await callObject(env, env.KEY_GATE, keyHash, (gate) => gate.forget());
  // This comes last, because this isolate may cache another refusal during the call.
  recentRefusals.delete(keyHash);
}
