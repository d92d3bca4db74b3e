import { parseInput, parseRecordMessage } from "../contract/input.ts";
import { InputError } from "../contract/input-error.ts";
import {
  INGEST_AWAY_MS,
  INGEST_DATABASE_MAX_MS,
  INGEST_TRANSACTION_MAX_BYTES,
  INGEST_TRANSACTION_MAX_RECORDS,
  INGEST_WAIT_SECONDS,
  MESSAGE_MAX_BYTES,
  UNORDERED_FIRST_WAIT_SECONDS,
  UNORDERED_LAST_WAIT_SECONDS,
  UNORDERED_MAX_SECONDS,
} from "../contract/limits.ts";
import type { RecordingMethod } from "../contract/platform.ts";
import type { Database } from "../db/client.ts";
import { DIRECTORY, databaseNames, hasOneDatabase, openNamed } from "../db/databases.ts";
import { isTransient } from "../db/errors.ts";
import { DatabaseAway, findDatabases, inTime } from "../db/homes.ts";
import { wake } from "../delivery/wake.ts";
import { log, logError } from "../log.ts";
import type { Wake } from "../model/due.ts";
import { toRecording } from "../recording/record.ts";
import { commitRecordings, type Prepared, type Recording } from "../recording/recording.ts";
import {
  addLeftovers,
  checkReferences,
  findReferenced,
  MissingReference,
} from "../recording/references.ts";

/** A message, and what has become of it so far. */
interface Item {
  message: Message;
  method?: RecordingMethod;
  outcome: Outcome;
}

type Outcome =
  /** Its turn has not come, or failed through no fault of its own. */
  | { kind: "untried" }
  /** What it refers to may be on its way. */
  | { kind: "early"; waitSeconds: number }
  | { kind: "refused"; reason: string }
  | { kind: "set_aside" }
  | { kind: "recorded" };

/**
 * The queue door of platforms that are not Workers: records what the messages of `platform-records`
 * say, as the Platform door would. All that is good is committed together; what is bad is set aside
 * in the dead-letter queue, with a reason. A message is acknowledged once its outcome stands in the
 * database or in that queue; until then it comes back.
 */
export async function ingest(messages: readonly Message[], env: Env): Promise<void> {
  const items = messages.map((message): Item => ({ message, outcome: { kind: "untried" } }));
  const failed = new Set<string>();
  try {
    for (const group of groupsOf(items))
      if (failed.size < databaseNames(env).length) await recordAll(env, group, failed);
  } catch (error) {
    // What is left would fail alike, and keeps its order.
    logError("records_failed", error, { messages: items.length });
  }
  await Promise.all(items.map((item) => setAside(env, item)));
  for (const { message, outcome } of items)
    if (outcome.kind === "recorded" || outcome.kind === "set_aside") message.ack();
    else if (outcome.kind === "early") message.retry({ delaySeconds: outcome.waitSeconds });
    else message.retry({ delaySeconds: waitSeconds(message.attempts) });
  const counts = Map.groupBy(items, ({ outcome }) => outcome.kind);
  const of = (kind: Outcome["kind"]) => counts.get(kind)?.length ?? 0;
  log("records", {
    messages: items.length,
    recorded: of("recorded"),
    early: of("early"),
    setAside: of("set_aside"),
  });
}

/** The messages in order, in groups whose bytes one transaction can hold. */
function groupsOf(items: Item[]): Item[][] {
  return grouped(items, ({ message }) => bytesOf(contentOf(message)), INGEST_TRANSACTION_MAX_BYTES);
}

/** Items in order, in groups whose sizes sum up to at most `max`, but for one that exceeds it alone. */
function grouped<T>(items: T[], sizeOf: (item: T) => number, max: number): T[][] {
  const groups: T[][] = [];
  let total = Number.POSITIVE_INFINITY;
  for (const item of items) {
    const size = sizeOf(item);
    if (total + size > max) {
      groups.push([]);
      total = 0;
    }
    groups.at(-1)?.push(item);
    total += size;
  }
  return groups;
}

/** A message that can be committed, and how many records it holds. */
interface Ready extends Prepared {
  item: Item;
  records: number;
}

/** A message that could be read. */
interface Readable {
  item: Item;
  recording: Recording;
}

/**
 * Records messages, those of each database apart, so that one that is away keeps no other waiting.
 *
 * @param failed the databases that have failed in this batch: what is left for them would fail alike,
 *   and keeps its order.
 */
async function recordAll(env: Env, items: Item[], failed: Set<string>): Promise<void> {
  const now = Date.now();
  const read = await Promise.all(
    items.map(async (item) => {
      const recording = await judged(item, async () => {
        const { method, input } = await parseRecordMessage(contentOf(item.message));
        item.method = method;
        const sentAt = item.message.timestamp.getTime();
        return toRecording(env, method, await parseInput(method, input), { sentAt, now });
      });
      return recording ? [{ item, recording }] : [];
    }),
  );
  const readable: Readable[] = read.flat();
  if (readable.length === 0) return;
  const workspaceIds = new Set(readable.map(({ recording }) => recording.workspaceId));
  const databases = await findDatabases(env, [...workspaceIds]);
  const groups = Map.groupBy(
    readable,
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

/** Databases that did not answer in time, and when they are asked again, Unix milliseconds. */
const awayUntil = new Map<string, number>();

/** Records messages; where there are other databases, they wait for this one for a bounded time. */
async function recordInTime(env: Env, database: string, readable: Readable[], now: number) {
  if (hasOneDatabase(env)) return recordIn(env, database, readable, now);
  if ((awayUntil.get(database) ?? 0) > now) throw new DatabaseAway(`${database} did not answer`);
  try {
    await inTime(database, recordIn(env, database, readable, now), INGEST_DATABASE_MAX_MS);
  } catch (error) {
    if (error instanceof DatabaseAway) awayUntil.set(database, Date.now() + INGEST_AWAY_MS);
    throw error;
  }
}

/** Records messages in one transaction unless they hold too many records, and wakes subscriptions. */
async function recordIn(
  env: Env,
  database: string,
  readable: Readable[],
  now: number,
): Promise<void> {
  const db = openNamed(env, database);
  const recordings = readable.map(({ recording }) => recording);
  const known = await findReferenced(db, recordings);
  const prepared: Ready[] = [];
  for (const { item, recording } of readable) {
    const { workspaceId, leaves, once, ids } = recording;
    const statements = await judged(item, () => {
      checkReferences(recording, known);
      addLeftovers(known, workspaceId, leaves);
      return recording.statements(known.automations);
    });
    if (statements) prepared.push({ item, workspaceId, once, statements, records: ids.length });
  }
  const transactions = grouped(prepared, (one) => one.records, INGEST_TRANSACTION_MAX_RECORDS);
  for (const transaction of transactions)
    await wake(env, database, await commitTogether(db, transaction, now));
}

/** Commits messages in one transaction, or, where the database refuses that, one after another. */
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
 * Commits one message after another, so that one that fails fails by itself; when it comes back,
 * what it refers to is looked up anew.
 */
async function commitEach(db: Database, prepared: Ready[], now: number) {
  const wakes: Wake[] = [];
  for (const one of prepared) {
    try {
      // What it refers to may have been a message before it, which it was prepared to come with.
      wakes.push(...(await commitAll(db, [{ ...one, once: true }], now)));
    } catch (error) {
      if (isTransient(error)) break;
      logError("record_failed", error, { message: one.item.message.id });
    }
  }
  return wakes;
}

/** What `step` gives; null when it throws, which is then the outcome of the message. */
async function judged<T>(item: Item, step: () => T | Promise<T>): Promise<T | null> {
  try {
    return await step();
  } catch (error) {
    const { id } = item.message;
    const early =
      error instanceof MissingReference ? earlyWaitSeconds(item.message, Date.now()) : null;
    if (early !== null) item.outcome = { kind: "early", waitSeconds: early };
    else if (error instanceof InputError)
      item.outcome = { kind: "refused", reason: error.message.slice(0, REASON_MAX_LENGTH) };
    else logError("record_failed", error, { message: id });
    return null;
  }
}

/** A reason may name a property that its sender made up, however long. */
const REASON_MAX_LENGTH = 500;

/** Sends a refused message to the dead-letter queue; one that it does not take stays refused. */
async function setAside(env: Env, item: Item): Promise<void> {
  const { message, method, outcome } = item;
  if (outcome.kind !== "refused") return;
  try {
    const content = contentOf(message);
    const letter = { reason: outcome.reason, method, message: content };
    if (bytesOf(letter) <= MESSAGE_MAX_BYTES) await env.DEAD_RECORDS.send(letter);
    // One that fills its limit has no room for a reason.
    else if (typeof content !== "string") await env.DEAD_RECORDS.send(content);
    else await env.DEAD_RECORDS.send(content, { contentType: "text" });
    item.outcome = { kind: "set_aside" };
    log("record_set_aside", { message: message.id, method });
  } catch (error) {
    logError("set_aside_failed", error, { message: message.id });
  }
}

/** What a message holds: a JSON value, or a text that should be one. */
function contentOf({ body }: Message): unknown {
  return body instanceof ArrayBuffer ? new TextDecoder().decode(body) : body;
}

/** The size of a value as JSON; 0 when it cannot be written as such. */
function bytesOf(value: unknown): number {
  try {
    return new TextEncoder().encode(JSON.stringify(value)).length;
  } catch {
    return 0;
  }
}

/** How long a message waits for what it refers to; `null` when it has waited long enough. */
function earlyWaitSeconds({ timestamp, attempts }: Message, now: number): number | null {
  const ageSeconds = Math.max(0, Math.ceil((now - timestamp.getTime()) / 1_000));
  const leftSeconds = UNORDERED_MAX_SECONDS - ageSeconds;
  if (leftSeconds > 0)
    return Math.min(leftSeconds, Math.max(UNORDERED_FIRST_WAIT_SECONDS, ageSeconds));
  return attempts === 1 ? UNORDERED_LAST_WAIT_SECONDS : null;
}

function waitSeconds(attempts: number): number {
  return Math.min(INGEST_WAIT_SECONDS.first * 2 ** (attempts - 1), INGEST_WAIT_SECONDS.max);
}
