import type { Moment, RecordingMethod } from "../contract/platform.ts";
import type { Database } from "../db/client.ts";
import { findHome, openToWrite } from "../db/homes.ts";
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
 * @param now Unix milliseconds: when it is received, and recorded.
 * @returns the ids of its records, how many it inserted or removed, and the subscriptions to be woken,
 *   with the name of the database that knows them.
 * @throws InputError that says what is wrong and where; then nothing is written.
 */
export async function record(
  env: Env,
  method: RecordingMethod,
  input: unknown,
  now: number,
): Promise<{ ids: string[]; changed: number; database: string; wakes: Wake[] }> {
  const recording = await parseRecording(env, method, input, { sentAt: null, now });
  const { workspaceId, ids, references, leaves, once, missing } = recording;
  const home = await openToWrite(env, () => findHome(env, workspaceId));
  // What inserts rows of its workspace, and names nothing else, needs no look-up: the database tells.
  const isLookedUp = references.length > 0 || leaves.removedAutomationIds !== undefined;
  const automations = isLookedUp ? await findReferences(home.db, recording) : new Map();
  const statements = recording.statements(automations);
  const committed = commitRecordings(home.db, [{ workspaceId, once, statements }], now);
  const { changed, wakes } = await referring(committed, missing);
  return { ids, changed, database: home.database, wakes };
}

/** Finds the automations a recording refers to. @throws InputError for a missing reference. */
async function findReferences(db: Database, recording: Recording): Promise<KnownAutomations> {
  const known = await lookUp(db, [recording]);
  checkReferences(recording, known);
  return known.automations;
}
