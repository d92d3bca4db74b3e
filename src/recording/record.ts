import type { Moment, RecordingMethod } from "../contract/platform.ts";
import { type Database, openDatabase } from "../db/client.ts";
import { type Visibility, visibilityOf } from "../model/automations.ts";
import type { Wake } from "../model/due.ts";
import { parseAutomations, parseRemoval } from "./automations.ts";
import { parseLeads } from "./leads.ts";
import { commitRecordings, type Recording } from "./recording.ts";
import { checkReferences, type KnownAutomations, lookUp, referring } from "./references.ts";
import { parseRuns } from "./runs.ts";

const PARSERS: Record<
  RecordingMethod,
  (input: unknown, moment: Moment, visibility: Visibility) => Promise<Recording>
> = {
  recordAutomations: parseAutomations,
  removeAutomations: parseRemoval,
  recordLeads: parseLeads,
  recordRuns: parseRuns,
};

/**
 * Parses the input of a recording method.
 *
 * @throws InputError that says what is wrong and where.
 */
export function parseRecording(
  env: Env,
  method: RecordingMethod,
  input: unknown,
  moment: Moment,
): Promise<Recording> {
  return PARSERS[method](input, moment, visibilityOf(env.SERVED_ROUTES));
}

/**
 * Records one call in one transaction.
 *
 * @param now Unix milliseconds: when the call was received.
 * @returns the ids of its records, how many it inserted or removed, and the subscriptions to wake.
 * @throws InputError that says what is wrong and where; then nothing is written.
 */
export async function record(
  env: Env,
  method: RecordingMethod,
  input: unknown,
  now: number,
): Promise<{ ids: string[]; changed: number; wakes: Wake[] }> {
  const db = openDatabase(env.DB);
  const recording = await parseRecording(env, method, input, { sentAt: null, now });
  const { workspaceId, ids, references, leaves, once, missing } = recording;
  // Inserts with no other references need no look-up: a missing workspace fails its foreign key.
  const isLookedUp = references.length > 0 || leaves.removedAutomationIds !== undefined;
  const automations = isLookedUp ? await findReferences(db, recording) : new Map();
  const statements = recording.statements(automations);
  const committed = commitRecordings(db, [{ workspaceId, once, statements }], now);
  return { ids, ...(await referring(committed, missing)) };
}

/** Finds the automations a recording refers to. @throws InputError for a missing reference. */
async function findReferences(db: Database, recording: Recording): Promise<KnownAutomations> {
  const known = await lookUp(db, [recording]);
  checkReferences(recording, known);
  return known.automations;
}
