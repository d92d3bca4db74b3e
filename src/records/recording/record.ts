import type { Moment } from "../../contract/time.ts";
import type { Statements } from "../../db/client.ts";
import { knownDataKey, openDataKey } from "../../encryption/personal-data.ts";
import type { Wake } from "../../webhooks/dispatch/wake.ts";
import { findPlacement, openToWrite } from "../../workspaces/placement.ts";
import { type Visibility, visibilityOf } from "../automations.ts";
import { toAutomationRecording, toRemoval } from "./automations.ts";
import type { RecordingInput, RecordingMethod } from "./inputs.ts";
import { toLeadRecording } from "./leads.ts";
import { commitRecordings, type Recording } from "./recording.ts";
import { checkReferences, findReferenced, type Known, refuseMissing } from "./references.ts";
import { toRunRecording } from "./runs.ts";

const RECORDINGS: {
  [M in RecordingMethod]: (
    input: RecordingInput<M>,
    moment: Moment,
    visibility: Visibility,
  ) => Promise<Recording>;
} = {
  recordAutomations: toAutomationRecording,
  removeAutomations: toRemoval,
  recordLeads: toLeadRecording,
  recordRuns: toRunRecording,
};

/** Turns the parsed input of a recording method into what is to be checked and written. */
export function toRecording<M extends RecordingMethod>(
  env: Env,
  method: M,
  input: RecordingInput<M>,
  moment: Moment,
): Promise<Recording> {
  return RECORDINGS[method](input, moment, visibilityOf(env.SERVED_ROUTES));
}

/**
 * Records one call in one transaction.
 *
 * @param now Unix milliseconds: when it is received, and recorded.
 * @returns the ids of its records, how many it inserted or removed, and the subscriptions to wake,
 *   with the name of their database.
 * @throws InputError that says what is wrong and where; nothing is written then.
 */
export async function record<M extends RecordingMethod>(
  env: Env,
  method: M,
  input: RecordingInput<M>,
  now: number,
): Promise<{ ids: string[]; changed: number; database: string; wakes: Wake[] }> {
  const recording = await toRecording(env, method, input, { sentAt: null, now });
  const {
    workspaceId,
    ids,
    references,
    effects,
    once = false,
    missing,
    hasPersonalData,
  } = recording;
  const placement = await openToWrite(env, () => findPlacement(env, workspaceId));
  // Otherwise no look-up is needed: a missing workspace fails its foreign key.
  const isLookedUp =
    references !== undefined ||
    effects?.removedAutomationIds !== undefined ||
    (hasPersonalData && !knownDataKey(workspaceId));
  const known = isLookedUp ? await findReferenced(placement.db, [recording]) : NOTHING_KNOWN;
  if (isLookedUp) checkReferences(recording, known);
  const statements = await toStatements(env, recording, known);
  const committed = commitRecordings(placement.db, [{ workspaceId, once, statements }], now);
  const { changed, wakes } = await refuseMissing(committed, missing);
  return { ids, changed, database: placement.database, wakes };
}

const NOTHING_KNOWN: Known = {
  workspaces: new Map(),
  automations: new Map(),
  leads: new Set(),
  erasedLeads: new Set(),
};

/**
 * The statements of a recording, with personal data encrypted under its workspace's data key.
 *
 * @param known what it refers to.
 * @throws InputError for an unknown workspace; Error if it has just moved, or its data key cannot be
 *   decrypted.
 */
export async function toStatements(
  env: Env,
  { hasPersonalData, workspaceId, statements }: Recording,
  { automations, erasedLeads, workspaces }: Known,
): Promise<Statements<number>> {
  if (!hasPersonalData) return statements({ automations, erasedLeads, dataKey: null });
  const sealed = workspaces.get(workspaceId);
  // Not an InputError: whoever tries again finds where it lives now.
  if (sealed === null && !knownDataKey(workspaceId))
    throw new Error("workspace_moving: the workspace does not live in this database any more");
  const dataKey = await openDataKey(env.ENCRYPTION_KEYS, workspaceId, sealed ?? null);
  return statements({ automations, erasedLeads, dataKey });
}
