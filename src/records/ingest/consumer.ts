import { MINUTE_MS } from "../../contract/time.ts";
import type { Database } from "../../db/client.ts";
import { DIRECTORY, databaseNames, hasOneDatabase, openNamed } from "../../db/databases.ts";
import { isTransient } from "../../db/errors.ts";
import { inGroups } from "../../groups.ts";
import { log, logError } from "../../log.ts";
import { type Wake, wake } from "../../webhooks/dispatch/wake.ts";
import { DatabaseUnreachable, findDatabases, inTime } from "../../workspaces/placement.ts";
import { parseRecordingInput, parseRecordMessage } from "../recording/inputs.ts";
import { toRecording, toStatements } from "../recording/record.ts";
import { commitRecordings, type Prepared, type Recording } from "../recording/recording.ts";
import { addEffects, checkReferences, findReferenced } from "../recording/references.ts";
import {
  bytesOf,
  contentOf,
  type Item,
  type Outcome,
  setAside,
  settle,
  tryStep,
} from "./message.ts";

/** Maximum size of the messages the ingest queue records in one transaction, in bytes of JSON. */
const INGEST_TRANSACTION_MAX_BYTES = 1_000_000;
/**
 * Maximum records in one such transaction: with the maximum number of subscriptions, 100,000
 * deliveries, which take 5 of the 30 seconds that D1 allows.
 */
const INGEST_TRANSACTION_MAX_RECORDS = 1_000;
/** With several databases, the maximum time that the others wait for one that does not answer... */
const INGEST_DATABASE_MAX_MS = 10_000;
/** ...and how long they then go on without it. */
const INGEST_UNREACHABLE_MS = MINUTE_MS;

/**
 * The queue for platforms that are not Workers: records the messages of `platform-records` as the
 * Platform API would. All valid ones are committed together; invalid ones go to the dead-letter queue,
 * with a reason. A message is acknowledged once its outcome is stored in either; until then, it is
 * retried.
 */
export async function ingest(messages: readonly Message[], env: Env): Promise<void> {
  const items = messages.map((message): Item => ({ message, outcome: { kind: "untried" } }));
  const failed = new Set<string>();
  try {
    for (const group of groupsOf(items))
      if (failed.size < databaseNames(env).length) await recordAll(env, group, failed);
  } catch (error) {
    // The remaining messages would fail too. Untried, they keep their order.
    logError("records_failed", error, { messages: items.length });
  }
  await Promise.all(items.map((item) => setAside(env, item)));
  for (const item of items) settle(item);
  const counts = Map.groupBy(items, ({ outcome }) => outcome.kind);
  const countOf = (kind: Outcome["kind"]) => counts.get(kind)?.length ?? 0;
  log("records", {
    messages: items.length,
    recorded: countOf("recorded"),
    early: countOf("early"),
    setAside: countOf("set_aside"),
  });
}

/** The messages in order, in groups that are small enough for one transaction. */
function groupsOf(items: Item[]): Item[][] {
  return inGroups(items, INGEST_TRANSACTION_MAX_BYTES, ({ message }) =>
    bytesOf(contentOf(message)),
  );
}

/** A message that can be committed, and how many records it contains. */
interface Ready extends Prepared {
  item: Item;
  records: number;
}

interface Parsed {
  item: Item;
  recording: Recording;
}

/**
 * Records messages, separately for each database, so that one that does not answer does not delay the
 * others.
 *
 * @param failed the databases that have failed in this batch. Their remaining messages would fail
 *   too; untried, they keep their order.
 */
async function recordAll(env: Env, items: Item[], failed: Set<string>): Promise<void> {
  const now = Date.now();
  const results = await Promise.all(
    items.map(async (item) => {
      const recording = await tryStep(item, async () => {
        const { method, input } = parseRecordMessage(contentOf(item.message));
        item.method = method;
        const sentAt = item.message.timestamp.getTime();
        return toRecording(env, method, parseRecordingInput(method, input), { sentAt, now });
      });
      return recording ? [{ item, recording }] : [];
    }),
  );
  const parsed: Parsed[] = results.flat();
  if (parsed.length === 0) return;
  const workspaceIds = new Set(parsed.map(({ recording }) => recording.workspaceId));
  const databases = await findDatabases(env, [...workspaceIds]);
  const groups = Map.groupBy(
    parsed,
    ({ recording }) => databases.get(recording.workspaceId) ?? DIRECTORY,
  );
  const work = [...groups].map(async ([database, group]) => {
    if (failed.has(database)) return;
    try {
      await recordInTime(env, database, group, now);
    } catch (error) {
      failed.add(database);
      logError("records_failed", error, { database, messages: group.length });
    }
  });
  await Promise.all(work);
}

/** The databases that did not answer in time, and when to try them again, in Unix milliseconds. */
const unreachableUntil = new Map<string, number>();

/** Records messages. If there are several databases, this one has a limited time to answer. */
async function recordInTime(env: Env, database: string, parsed: Parsed[], now: number) {
  if (hasOneDatabase(env)) return recordIn(env, database, parsed, now);
  if ((unreachableUntil.get(database) ?? 0) > now)
    throw new DatabaseUnreachable(`${database} did not answer`);
  try {
    await inTime(database, recordIn(env, database, parsed, now), INGEST_DATABASE_MAX_MS);
  } catch (error) {
    if (error instanceof DatabaseUnreachable)
      unreachableUntil.set(database, Date.now() + INGEST_UNREACHABLE_MS);
    throw error;
  }
}

/**
 * Records messages and wakes the subscriptions to their events; in one transaction, unless there are
 * too many records.
 */
async function recordIn(env: Env, database: string, parsed: Parsed[], now: number): Promise<void> {
  const db = openNamed(env, database);
  const recordings = parsed.map(({ recording }) => recording);
  const known = await findReferenced(db, recordings);
  const prepared: Ready[] = [];
  for (const { item, recording } of parsed) {
    const { workspaceId, effects, once = false, ids } = recording;
    const statements = await tryStep(item, () => {
      checkReferences(recording, known);
      return toStatements(env, recording, known);
    });
    if (!statements) continue;
    addEffects(known, workspaceId, effects);
    prepared.push({ item, workspaceId, once, statements, records: ids.length });
  }
  const transactions = inGroups(prepared, INGEST_TRANSACTION_MAX_RECORDS, (one) => one.records);
  for (const transaction of transactions)
    await wake(env, database, await commitTogether(db, transaction, now));
}

/** Commits messages in one transaction; one by one if the database refuses that. */
async function commitTogether(db: Database, prepared: Ready[], now: number): Promise<Wake[]> {
  try {
    return await commitAll(db, prepared, now);
  } catch (error) {
    if (isTransient(error)) throw error;
    logError("records_refused_together", error, { messages: prepared.length });
    return commitEach(db, prepared, now);
  }
}

async function commitAll(db: Database, prepared: Ready[], now: number) {
  const { wakes } = await commitRecordings(db, prepared, now);
  for (const { item } of prepared) item.outcome = { kind: "recorded" };
  return wakes;
}

/**
 * Commits messages one by one, so that a failing message fails alone. When it comes back, its
 * references are looked up again.
 */
async function commitEach(db: Database, prepared: Ready[], now: number) {
  const wakes: Wake[] = [];
  for (const one of prepared) {
    try {
      // It was prepared to be committed together with earlier messages, which it may refer to.
      wakes.push(...(await commitAll(db, [{ ...one, once: true }], now)));
    } catch (error) {
      if (isTransient(error)) break;
      logError("record_failed", error, { messageId: one.item.message.id });
    }
  }
  return wakes;
}
