import { commit, withoutRetries } from "../../db/client.ts";
import { selectDue } from "../../delivery/due.ts";
import type { WakeUp } from "../../delivery/messages.ts";
import { findPlacement } from "../../workspaces/placement.ts";
import { checkAutomations, checkRemoval } from "./automations.ts";
import type { CallContext, CheckedCall } from "./checked-call.ts";
import type { RecordingInput, RecordingMethod } from "./inputs.ts";
import { checkLeads } from "./leads.ts";
import { refuseMissing } from "./references.ts";
import { checkRuns } from "./runs.ts";

/*
 * Records what the platform reports. This file checks a call and commits it. The other files of this folder:
 *
 * - inputs.ts has the schemas of the calls.
 * - automations.ts, leads.ts and runs.ts check a call, and prepare its statements (a `CheckedCall`).
 * - references.ts looks up the records to which others refer.
 */

const CHECKS: {
  [M in RecordingMethod]: (input: RecordingInput<M>, context: CallContext) => Promise<CheckedCall>;
} = {
  recordAutomations: checkAutomations,
  removeAutomations: checkRemoval,
  recordLeads: checkLeads,
  recordRuns: checkRuns,
};

/** Maximum tries of a call whose automations are changed by other calls at the same time. Other calls take one try. */
const TRIES = 50;

/**
 * Records one call in one transaction. If another call has changed a row that this one was checked against, the call
 * is checked and tried again.
 *
 * @param now when the call was received, in Unix milliseconds; records get this time.
 * @returns the ids of its records; how many it inserted or removed, which is too few if the database lost the reply
 *   to a first try; and the wake-up messages to send, with the name of their database.
 * @throws InputError for invalid input; nothing is written then.
 */
export async function record<M extends RecordingMethod>(
  env: Env,
  method: M,
  input: RecordingInput<M>,
  now: number,
): Promise<{ ids: string[]; changed: number; database: string; wakeUps: WakeUp[] }> {
  const { workspaceId } = input;
  const { db, database } = await findPlacement(env, workspaceId);
  for (let tries = 0; tries < TRIES; tries++) {
    const checked = await CHECKS[method](input, { env, db, now });
    const { ids, statements, missing, isTriedOnce } = checked;
    const written = commit(isTriedOnce ? withoutRetries(db) : db, {
      changed: statements,
      wakeUps: selectDue(workspaceId, now),
    });
    const { changed, wakeUps } = await refuseMissing(written, missing);
    if (changed !== null) return { ids, changed, database, wakeUps };
  }
  throw new Error("other calls changed the records during every try");
}
