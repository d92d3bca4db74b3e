import { retryTransient } from "../db/errors.ts";
import type { StoredKey } from "../workspaces/key-rows.ts";
import { keyResults } from "./isolate-cache.ts";

/** The delay before a retry. After a reset, a new object starts within milliseconds. */
const WAIT_MS = 20;

/**
 * Calls a Durable Object in this deployment's `JURISDICTION`. Retries if the object was reset during the call or was
 * unreachable. A call whose reply was lost may have been carried out, so the call must be safe to repeat. One that
 * counts may count once more for each lost reply.
 *
 * @throws the error of the last call; a call to an overloaded object is not retried.
 */
export function callWithRetries<T extends Rpc.DurableObjectBranded, Reply>(
  { JURISDICTION: jurisdiction }: Env,
  binding: DurableObjectNamespace<T>,
  name: string,
  call: (object: DurableObjectStub<T>) => Reply,
): Promise<Awaited<Reply>> {
  const objects = jurisdiction
    ? binding.jurisdiction(jurisdiction as DurableObjectJurisdiction)
    : binding;
  // Each try gets a new stub, because the stub of an object that was reset stays broken.
  return retryTransient(() => call(objects.getByName(name)), { waitMs: WAIT_MS });
}

/**
 * Invalidates the key status that the gate of a key has cached. A key that was never used has no gate. Other isolates
 * that have just cached a refusal of the key may repeat it, with 429 or 403, for up to two more seconds.
 */
export async function invalidateKey(
  env: Env,
  { keyHash, lastUsedAt }: Pick<StoredKey, "keyHash" | "lastUsedAt">,
): Promise<void> {
  if (lastUsedAt === null) return;
  await callWithRetries(env, env.KEY_GATE, keyHash, (gate) => gate.forget());
  // This comes last, because this isolate may cache another refusal during the call.
  keyResults.stopRepeating(keyHash);
}
