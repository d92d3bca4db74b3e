import type { StoredKey } from "../workspaces/api-keys.ts";
import { callObject } from "./call.ts";
import { recentRefusals } from "./memory.ts";

/**
 * Makes the gate of a key read its status again; a key that was never used has no gate. Other
 * isolates that have just seen the key's quota used up may refuse it as before, with 429 or 403, for
 * up to two more seconds.
 */
export async function invalidateKey(
  env: Env,
  { keyHash, lastUsedAt }: Pick<StoredKey, "keyHash" | "lastUsedAt">,
): Promise<void> {
  if (lastUsedAt === null) return;
  await callObject(env, env.KEY_GATE, keyHash, (gate) => gate.forget());
  // Last, because a refusal in the meantime is remembered, too.
  recentRefusals.take(keyHash);
}
