import type { Moment, RecordingMethod } from "../contract/platform.ts";
import { openDatabase } from "../db/client.ts";
import { type Visibility, visibilityOf } from "../model/automations.ts";
import type { Wake } from "../model/due.ts";
import { readAutomations, readRemoval } from "./automations.ts";
import { readLeads } from "./leads.ts";
import { commitRecordings, type Recording } from "./recording.ts";
import { type Known, lookUp, referring } from "./references.ts";
import { readRuns } from "./runs.ts";

const READERS: Record<
  RecordingMethod,
  (input: unknown, moment: Moment, visibility: Visibility) => Promise<Recording>
> = {
  recordAutomations: readAutomations,
  removeAutomations: readRemoval,
  recordLeads: readLeads,
  recordRuns: readRuns,
};

/**
 * Reads the input of a method that records.
 *
 * @throws InputError that says what is wrong and where.
 */
export function readRecording(
  env: Env,
  method: RecordingMethod,
  input: unknown,
  moment: Moment,
): Promise<Recording> {
  return READERS[method](input, moment, visibilityOf(env.SERVED_ROUTES));
}

/**
 * Records one call in one transaction.
 *
 * @param now Unix milliseconds: when it is received, and recorded.
 * @returns the ids of its records, how many it inserted or removed, and the subscriptions to be woken.
 * @throws InputError that says what is wrong and where; then nothing is written.
 */
export async function record(
  env: Env,
  method: RecordingMethod,
  input: unknown,
  now: number,
): Promise<{ ids: string[]; changed: number; wakes: Wake[] }> {
  const db = openDatabase(env.DB);
  const recording = await readRecording(env, method, input, { sentAt: null, now });
  const { workspaceId, ids, automationIds, leadIds, once, missing } = recording;
  const refers = automationIds.length + leadIds.length > 0;
  const known = refers ? await lookUp(db, [recording]) : trusting(workspaceId);
  const statements = recording.prepare(known);
  const committed = commitRecordings(db, [{ workspaceId, once, statements }], now);
  return { ids, ...(await referring(committed, missing)) };
}

/** Of a recording that refers to its workspace alone, the database itself will tell. */
function trusting(workspaceId: string): Known {
  return { workspaces: new Set([workspaceId]), automations: new Map(), leads: new Set() };
}
