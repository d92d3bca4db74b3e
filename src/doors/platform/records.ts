import type { ParsedInput, Recorded, RecordingMethod } from "../../contract/platform.ts";
import { wake } from "../../delivery/wake.ts";
import { record } from "../../recording/record.ts";
import type { Call, Methods } from "./methods.ts";

/** The methods that record what the platform produces. */
export const recordMethods = {
  /** Inserts automations, or updates those whose reference is known; announces activations and pauses. */
  async recordAutomations(call, input): Promise<Recorded> {
    const { ids, changed } = await recordAndWake(call, "recordAutomations", input);
    return { ids, created: changed };
  },

  /**
   * Removes automations whose account was unsubscribed, and their runs. Unknown ids are ignored.
   *
   * @returns how many automations were removed.
   */
  async removeAutomations(call, input) {
    const { changed } = await recordAndWake(call, "removeAutomations", input);
    return { removed: changed };
  },

  /** Inserts leads and announces them. A lead whose reference is known is left unchanged. */
  async recordLeads(call, input): Promise<Recorded> {
    const { ids, changed } = await recordAndWake(call, "recordLeads", input);
    return { ids, created: changed };
  },

  /** Inserts finished runs and announces them. A run whose reference is known is left unchanged. */
  async recordRuns(call, input): Promise<Recorded> {
    const { ids, changed } = await recordAndWake(call, "recordRuns", input);
    return { ids, created: changed };
  },
} satisfies Partial<Methods>;

/** Records a call, then wakes the subscribers to its events without making the caller wait. */
async function recordAndWake<M extends RecordingMethod>(
  { env, ctx }: Call,
  method: M,
  input: ParsedInput<M>,
) {
  const { ids, changed, database, wakes } = await record(env, method, input, Date.now());
  ctx.waitUntil(wake(env, database, wakes));
  return { ids, changed };
}
