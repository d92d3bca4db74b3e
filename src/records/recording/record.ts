import { commit, withoutRetries } from "../../db/client.ts";
import type { WakeUp } from "../../delivery/messages.ts";
import { listDue } from "../../delivery/schedule.ts";
import { findPlacement } from "../../workspaces/placement.ts";
import { toAutomationRecording, toRemoval } from "./automations.ts";
import type { RecordingInput, RecordingMethod } from "./inputs.ts";
import { toLeadRecording } from "./leads.ts";
import type { Context, Recording } from "./recording.ts";
import { refuseMissing } from "./references.ts";
import { toRunRecording } from "./runs.ts";

const RECORDINGS: {
  [M in RecordingMethod]: (input: RecordingInput<M>, context: Context) => Promise<Recording>;
} = {
  recordAutomations: toAutomationRecording,
  removeAutomations: toRemoval,
  recordLeads: toLeadRecording,
  recordRuns: toRunRecording,
};

/** How often a call is prepared anew, because others have changed what it was checked against. */
const ROUNDS = 50;

/**
 * Records one call in one transaction.
 *
 * @param now Unix milliseconds: when it is received, and recorded.
 * @returns the ids of its records, how many it inserted or removed (too few if the database lost the reply
 *   to a first try), and the subscriptions to wake, with the name of their database.
 * @throws InputError that says what is wrong and where; nothing is written then.
 */
export async function record<M extends RecordingMethod>(
  env: Env,
  method: M,
  input: RecordingInput<M>,
  now: number,
): Promise<{ ids: string[]; changed: number; database: string; wakeUps: WakeUp[] }> {
  const { workspaceId } = input;
  const { db, database } = await findPlacement(env, workspaceId);
  for (let round = 0; round < ROUNDS; round++) {
    const recording = await RECORDINGS[method](input, { env, db, now });
    const { ids, statements, missing, isTriedOnce } = recording;
    const written = commit(isTriedOnce ? withoutRetries(db) : db, {
      changed: statements,
      wakeUps: listDue(workspaceId, now),
    });
    const { changed, wakeUps } = await refuseMissing(written, missing);
    if (changed !== null) return { ids, changed, database, wakeUps };
  }
  throw new Error("the records were changed by others during every try");
}
