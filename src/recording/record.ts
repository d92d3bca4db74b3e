import { z } from "@hono/zod-openapi";
import { Instant, several } from "../contract/fields.ts";
import { RECORD_MAX_BYTES, REPORTED_AHEAD_MAX_MS } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import {
  combine,
  commit,
  type Database,
  readAs,
  type Statements,
  withoutRetries,
} from "../db/client.ts";
import { selectWakeUps, sendWakeUps } from "../delivery/wake.ts";
import { Name, Reference } from "../primitives/text.ts";
import { beingErased, findPlacement, refuseMissing } from "../workspaces/placement.ts";
import { failIfErasing, isErasing } from "../workspaces/write-guard.ts";

/*
 * Writes records with their events. This file commits a call that records what the platform reports, and has what these
 * calls share. The other files of this folder:
 *
 * - lead-recording.ts, run-recording.ts and automation-recording.ts have the input of the calls, and plan them. A plan
 *   has the rows of a call, and the statements that write and announce them (`RecordingPlan`).
 * - references.ts looks up the records to which others refer.
 * - automation-changes.ts writes and announces changes of automations, for a report and for a client.
 */

/** A recording call, with what it may use. */
interface RecordingCall {
  env: Env;
  /** The execution context, for work that continues after the call has returned. */
  ctx: Pick<ExecutionContext, "waitUntil">;
}

/** The circumstances of a recording call. */
export interface CallContext {
  env: Env;
  /** The database of its workspace. */
  db: Database;
  /** When the call was received, in Unix milliseconds; records get this time. */
  now: number;
}

/** The writes of a recording call that has been checked. */
export interface RecordingPlan<Changed = number> {
  /** The ids of its records, in input order. */
  ids: string[];
  /** The statements that write and announce its records. They read how many records they inserted or removed. */
  statements: Statements<Changed>;
  /**
   * Whether the statements may be applied twice, so that they are retried if the database loses the reply. A second
   * application must not undo a change that another call made after the first.
   */
  isIdempotent: boolean;
  /**
   * The error to throw if a record that one of them refers to was deleted after the call was planned; by default, the
   * workspace is unknown. If the call is valid, this is not an InputError, because the platform does not repeat an
   * invalid call.
   */
  missing?: Error;
}

/**
 * Records one call: plans it, and commits its statements as one transaction. Then wakes the subscriptions of the
 * workspace that have something to send, without making the caller wait: dispatch/consumer.ts gets their messages.
 *
 * @param plan reads what the plan depends on, and returns the plan. Throws an InputError for invalid input.
 * @param now when the call was received, in Unix milliseconds; records get this time.
 * @returns the ids of its records; how many it inserted or removed, which is too few if the database lost the reply
 *   to a first try; and the name of their database.
 * @throws InputError for invalid input; nothing is recorded then.
 */
export async function record<Input extends { workspaceId: string }, Changed>(
  { env, ctx }: RecordingCall,
  plan: (input: Input, context: CallContext) => Promise<RecordingPlan<Changed>>,
  input: Input,
  now = Date.now(),
): Promise<{ ids: string[]; changed: Changed; database: string }> {
  const { workspaceId } = input;
  const { db, database } = await findPlacement(env, workspaceId);
  const { ids, statements, isIdempotent, missing } = await plan(input, { env, db, now });
  const committed = commit(isIdempotent ? db : withoutRetries(db), {
    // Checked here, because an erasure may begin at any time until the commit.
    permitted: failIfErasing({ workspaceId }),
    changed: statements,
    wakeUps: selectWakeUps(workspaceId, now),
  });
  const { changed, wakeUps } = await refuseMissing(committed, missing).catch((error) => {
    throw isErasing(error) ? beingErased() : error;
  });
  ctx.waitUntil(sendWakeUps(env, database, wakeUps));
  return { ids, changed, database };
}

/**
 * Plans a call that inserts records and announces them. Stored records stay unchanged, so the statements may be applied
 * twice.
 *
 * @param reported the records, in input order.
 * @param announced announces the records that are not stored yet. It comes first, because it must not find them.
 * @param inserted inserts the records that are not stored yet, and reads how many these were.
 */
export function planInsertion(
  reported: readonly { id: string }[],
  announced: Statements<unknown>,
  inserted: Statements<number>,
): RecordingPlan {
  return {
    ids: reported.map(({ id }) => id),
    statements: readAs(combine({ announced, inserted }), ({ inserted: count }) => count),
    isIdempotent: true,
  };
}

/** The agent of a reported record. */
export const Agent = z
  .strictObject({
    reference: Reference.describe("your own id"),
    name: Name.describe("as the app shows it"),
  })
  .describe("the agent it belongs to");

/** The reference of a reported record that never changes. */
export const ReferenceOnce = Reference.describe("your own id; a known one changes nothing");

/** The part of a description that says how far ahead a time may be. */
export const AHEAD = `At most ${REPORTED_AHEAD_MAX_MS / MINUTE_MS} minutes ahead`;

/**
 * The time of a reported record. One that is far ahead comes from a wrong clock or unit. It would stay the newest for as
 * long, and make each later report of an automation out of date.
 */
export const ReportedTime = Instant.refine((ms) => ms <= Date.now() + REPORTED_AHEAD_MAX_MS, {
  error: `must be at most ${REPORTED_AHEAD_MAX_MS / MINUTE_MS} minutes ahead`,
  params: { reason: "out_of_range" },
});

/** Makes the schema of the reported records of a call. */
export function reports<T extends z.ZodType>(report: T) {
  return several(
    report.refine(
      (value) => new TextEncoder().encode(JSON.stringify(value)).length <= RECORD_MAX_BYTES,
      `must be at most ${RECORD_MAX_BYTES} bytes of JSON`,
    ),
  );
}

/** Removes records that have the id of an earlier one. */
export function uniqueById<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}
