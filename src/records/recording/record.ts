import { commit, withoutRetries } from "../../db/client.ts";
import { knownDataKey, openDataKey } from "../../encryption/personal-data.ts";
import { listDue, type Wake } from "../../webhooks/wake.ts";
import { findPlacement } from "../../workspaces/placement.ts";
import { type Visibility, visibilityOf } from "../automations.ts";
import { toAutomationRecording, toRemoval } from "./automations.ts";
import type { RecordingInput, RecordingMethod } from "./inputs.ts";
import { toLeadRecording } from "./leads.ts";
import type { Recording } from "./recording.ts";
import { findReferenced, type Known, NOTHING_KNOWN, refuseMissing } from "./references.ts";
import { toRunRecording } from "./runs.ts";

const RECORDINGS: {
  [M in RecordingMethod]: (
    input: RecordingInput<M>,
    now: number,
    visibility: Visibility,
  ) => Promise<Recording>;
} = {
  recordAutomations: toAutomationRecording,
  removeAutomations: toRemoval,
  recordLeads: toLeadRecording,
  recordRuns: toRunRecording,
};

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
): Promise<{ ids: string[]; changed: number; database: string; wakes: Wake[] }> {
  const recording = await RECORDINGS[method](input, now, visibilityOf(env.SERVED_ROUTES));
  const { workspaceId, ids, references, hasPersonalData, isTriedOnce, missing } = recording;
  const placement = await findPlacement(env, workspaceId);
  // Otherwise no look-up is needed: a missing workspace fails its foreign key.
  const isLookedUp = references || (hasPersonalData && !knownDataKey(workspaceId));
  const known = isLookedUp
    ? await findReferenced(placement.db, workspaceId, references ?? [])
    : NOTHING_KNOWN;
  const dataKey = hasPersonalData ? await dataKeyOf(env, workspaceId, known) : null;
  const work = {
    changed: await recording.statements(known, dataKey),
    wakes: listDue(workspaceId, now),
  };
  const db = isTriedOnce ? withoutRetries(placement.db) : placement.db;
  const { changed, wakes } = await refuseMissing(commit(db, work), missing);
  return { ids, changed, database: placement.database, wakes };
}

/** @throws Error if the workspace has just moved, or its data key cannot be decrypted. */
async function dataKeyOf(env: Env, workspaceId: string, known: Known): Promise<CryptoKey> {
  const key = await openDataKey(env.ENCRYPTION_KEYS, workspaceId, known.dataKey);
  // Not an InputError: whoever tries again finds where it lives now.
  if (!key)
    throw new Error("moving: try again: the workspace does not live in this database any more");
  return key;
}
