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

/*
 * The recording of records that the platform reports. This file runs a call. The other files of this folder:
 *
 * - inputs.ts has the schemas of the calls.
 * - automations.ts, leads.ts and runs.ts check a call, and prepare its statements (recording.ts has their type).
 * - references.ts looks up the records to which others refer.
 * - reports.ts decides how a report changes an automation. control.ts uses it, too, for changes of clients.
 */

const RECORDINGS: {
  [M in RecordingMethod]: (input: RecordingInput<M>, context: Context) => Promise<Recording>;
} = {
  recordAutomations: toAutomationRecording,
  removeAutomations: toRemoval,
  recordLeads: toLeadRecording,
  recordRuns: toRunRecording,
};

/** Maximum tries of a call whose automations are changed by other calls at the same time. */
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
