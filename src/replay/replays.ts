import { and, desc, eq, isNull, lt, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { InputError, unknownInput } from "../contract/input.ts";
import { REPLAYS_MAX } from "../contract/limits.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { excluded, insertFrom, qb } from "../db/builder.ts";
import { commit, counted, type Database, type Part, query } from "../db/client.ts";
import {
  deliveries,
  PRIORITY,
  type ReplayFilter,
  type ReplayResult,
  replays,
  subscriptions,
} from "../db/schema.ts";
import { isWritable, PENDING } from "../db/states.ts";
import type { AuditEntry } from "../workspaces/audit-trail.ts";
import type { ReplayView } from "../workspaces/views.ts";
import type { ResentEvent } from "./make-pending.ts";

/*
 * The replays of subscriptions. A row has the range of the replay, how far it is and why it ended, so that it outlives the
 * call that began it. Each call of a range continues from its row, and so does the scheduled job if nobody calls.
 *
 * The deliveries that a replay has made pending name it. The dispatch counts them in the row of the replay when it records
 * their outcomes, so that no list has to count, and a stop finds those that were not sent yet.
 */

/** A row of a replay. */
export type Replay = typeof replays.$inferSelect;

/** The part of a range that a call has examined, from one event to another; null for the beginning and the end. */
interface Examined {
  from: string | null;
  to: string | null;
  /** When the replay began. */
  requestedAt: number;
}

/**
 * Stores that a call has examined a part of a replay, in the transaction that makes `wanted` pending and after it. If
 * another call has examined the same part, only the first of them counts. A replay that examines no more has no cursor, so
 * its row stays as it is. A new replay replaces the oldest one that has ended, beyond `REPLAYS_MAX`.
 */
export function noteExamined(
  subscriptionId: string,
  replay: { id: string; filter: ReplayFilter; examined: Examined },
  wanted: readonly ResentEvent[],
  now: number,
): Record<"noted" | "pruned", Part | undefined> {
  const { from, to, requestedAt } = replay.examined;
  const ids = JSON.stringify(wanted.map(({ eventId }) => eventId));
  const scheduled = sql`(SELECT count(*) FROM json_each(${ids}) AS wanted
    CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = wanted.value
      AND ${deliveries.state} = 'pending' AND ${deliveries.replayId} = ${replay.id})`;
  const noted = insertFrom(
    replays,
    {
      workspaceId: subscriptions.workspaceId,
      subscriptionId: subscriptions.id,
      id: replay.id,
      filter: replay.filter,
      createdAt: requestedAt,
      cursor: to,
      examinedAt: now,
      scheduled,
    },
    sql`FROM ${subscriptions} WHERE ${subscriptions.id} = ${subscriptionId}`,
  ).onConflictDoUpdate({
    target: [replays.workspaceId, replays.subscriptionId, replays.id],
    set: {
      cursor: excluded(replays.cursor),
      examinedAt: excluded(replays.examinedAt),
      scheduled: sql`${replays.scheduled} + ${excluded(replays.scheduled)}`,
    },
    setWhere: sql`${replays.cursor} = ${from}`,
  });
  const { endedAt, createdAt, id } = replays;
  // Calls at once may each find room, so there may be more that have not ended.
  const pruned = sql`DELETE FROM ${replays} WHERE ${isOf(subscriptionId)} AND ${endedAt} IS NOT NULL AND ${id} IN (
    SELECT ${id} FROM ${replays} WHERE ${isOf(subscriptionId)}
    ORDER BY ${endedAt} IS NOT NULL, ${createdAt} DESC, ${id} DESC LIMIT -1 OFFSET ${REPLAYS_MAX})`;
  return { noted, pruned: from === null ? pruned : undefined };
}

/** SQL condition: replays of this subscription. */
function isOf(subscriptionId: string): SQL | undefined {
  return and(
    sql`${replays.workspaceId} = (SELECT ${subscriptions.workspaceId} FROM ${subscriptions} WHERE ${subscriptions.id} = ${subscriptionId})`,
    eq(replays.subscriptionId, subscriptionId),
  );
}

/** SQL condition: this replay of the subscription was not stopped. It may not be stored yet. */
export function isNotStopped(replayId: string): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${replays} WHERE ${replays.workspaceId} = ${subscriptions.workspaceId}
    AND ${replays.subscriptionId} = ${subscriptions.id} AND ${replays.id} = ${replayId} AND ${replays.result} IS NOT NULL)`;
}

/** SQL condition: this replay. */
function isReplay({ workspaceId, subscriptionId, id }: Replay): SQL | undefined {
  return and(
    eq(replays.workspaceId, workspaceId),
    eq(replays.subscriptionId, subscriptionId),
    eq(replays.id, id),
  );
}

/** Reads a replay of a subscription. @throws InputError if there is none. */
export async function findReplay(
  db: Database,
  subscriptionId: string,
  id: string,
  field: string,
): Promise<Replay> {
  const [found] = await query(
    db,
    qb
      .select()
      .from(replays)
      .where(and(isOf(subscriptionId), eq(replays.id, id))),
  );
  if (!found) throw unknownInput(field, "no such replay of this webhook");
  return found;
}

/** Reads the stored replays of a subscription, newest first. */
export function listReplaysOf(db: Database, subscriptionId: string): Promise<Replay[]> {
  return query(
    db,
    qb
      .select()
      .from(replays)
      .where(isOf(subscriptionId))
      .orderBy(desc(replays.createdAt), desc(replays.id)),
  );
}

/** @throws InputError if none of the replays of a subscription has ended, so that a new one could replace none. */
export async function expectRoom(db: Database, subscriptionId: string): Promise<void> {
  const found = await listReplaysOf(db, subscriptionId);
  if (found.filter(({ endedAt }) => endedAt === null).length >= REPLAYS_MAX)
    throw new InputError(
      "webhookId",
      `${REPLAYS_MAX} replays of it have not ended: stop one, or try again later`,
      { retry_after_seconds: RETRY_REPLAY_SECONDS },
    );
}

/**
 * The delay after which a caller with too many replays may try again, in seconds. The scheduled job has ended some by
 * then.
 */
const RETRY_REPLAY_SECONDS = 60;

/** Returns a replay in the shape that operations show. The scheduled job stores a little later that it is done. */
export function toReplayView(replay: Replay): ReplayView {
  const { id, createdAt, filter, cursor, scheduled, delivered, failed } = replay;
  const isDone = cursor === null && scheduled === delivered + failed;
  return {
    replayId: id,
    createdAt: isoTime(createdAt),
    since: isoTime(filter.since),
    until: isoTime(filter.until),
    states: [...filter.states],
    type: filter.type,
    status: filter.status,
    isExamining: cursor !== null,
    scheduled,
    delivered,
    failed,
    endedAt: isoTimeOrNull(replay.endedAt),
    result: replay.result ?? (isDone ? "done" : null),
  };
}

/** The pending deliveries of a replay that it has not sent yet: SQL from FROM on. */
function waitingOf({ subscriptionId, id, createdAt }: Replay): SQL {
  return sql`FROM json_each(${JSON.stringify(WebhookEvent.options)}) AS type
    CROSS JOIN ${PENDING} ON ${deliveries.subscriptionId} = ${subscriptionId} AND ${deliveries.state} = 'pending'
      AND ${deliveries.type} = type.value AND ${deliveries.priority} = ${PRIORITY.replay}
      AND ${deliveries.dueAt} >= ${createdAt} AND ${deliveries.replayId} = ${id}`;
}

/** Changes a replay, unless it has ended. */
async function change(
  db: Database,
  replay: Replay,
  changed: Partial<typeof replays.$inferInsert>,
): Promise<void> {
  const isOpen = and(isReplay(replay), isNull(replays.endedAt));
  await commit(db, qb.update(replays).set(changed).where(isOpen));
}

/**
 * Stops a replay. It examines nothing more, and its deliveries that were not sent yet get their former state back. A
 * dispatch may have claimed some of them, and still send them in the next second.
 *
 * @param hasMore whether there is time for more. The scheduled job does the rest.
 */
export async function stop(
  db: Database,
  replay: Replay,
  now: number,
  hasMore: () => boolean,
): Promise<void> {
  if (replay.endedAt !== null) return;
  await change(db, replay, { result: "stopped", cursor: null, examinedAt: now });
  let restored = CLEANUP_MAX;
  while (restored === CLEANUP_MAX) {
    if (!hasMore()) return;
    restored = await commit(db, restoreDeliveries(replay, now));
  }
  await change(db, replay, { endedAt: now });
}

/** Gives deliveries of a stopped replay the state back in which it found them. What was to be retried is due now. */
function restoreDeliveries(replay: Replay, now: number) {
  const { stateBefore } = deliveries;
  const isRetried = sql`${stateBefore} = 'pending'`;
  return counted(
    qb
      .update(deliveries)
      .set({
        state: sql`coalesce(${stateBefore}, 'cancelled')`,
        priority: sql`iif(${isRetried}, ${PRIORITY.retry}, ${deliveries.priority})`,
        settledAt: sql`iif(${isRetried}, NULL, ${now})`,
        replayId: null,
        stateBefore: null,
      })
      .where(
        sql`(${deliveries.subscriptionId}, ${deliveries.eventId}) IN (
          SELECT ${deliveries.subscriptionId}, ${deliveries.eventId} ${waitingOf(replay)}
          LIMIT ${CLEANUP_MAX})`,
      ),
  );
}

/** Maximum replays that one run of the scheduled job continues, in each database. */
const CONTINUED_MAX = 50;

/**
 * Finds replays that have not ended, and that nobody has continued since `before`. Workspaces take turns, so that one with
 * a thousand replays holds up no other. Of each workspace, those that wait longest come first.
 */
export function findUnended(db: Database, before: number): Promise<Replay[]> {
  const { endedAt, examinedAt, workspaceId } = replays;
  return query(
    db,
    qb
      .select()
      .from(replays)
      .where(and(isNull(endedAt), lt(examinedAt, before), isWritable(workspaceId)))
      .orderBy(
        sql`row_number() OVER (PARTITION BY ${workspaceId} ORDER BY ${examinedAt})`,
        examinedAt,
      )
      .limit(CONTINUED_MAX),
  );
}

/**
 * Ends a replay that has examined all events, if nothing of it waits. Some of its deliveries may have been cancelled or
 * resent instead. Those that wait are the first in the index, behind those of replays from before it.
 */
export async function endIfDone(db: Database, replay: Replay, now: number): Promise<void> {
  const found = await db.all(sql`SELECT 1 ${waitingOf(replay)} LIMIT 1`);
  if (found.length > 0) await touch(db, replay, now);
  else await change(db, replay, { result: "done", endedAt: now });
}

/** Ends a replay whose subscription is no longer active, and which will therefore send nothing more. */
export function interrupt(db: Database, replay: Replay, now: number): Promise<void> {
  return change(db, replay, { ...INTERRUPTED, endedAt: now });
}

const INTERRUPTED = { result: "interrupted", cursor: null } as const satisfies {
  result: ReplayResult;
  cursor: null;
};

/**
 * Ends the replays of a subscription that is disabled, in the transaction that enables it and before that. Disabling has
 * cancelled what they had scheduled, so they must not go on if the scheduled job has not seen it meanwhile.
 */
export function interruptDisabled(subscriptionId: string, now: number): Part {
  const { id, disabledAt } = subscriptions;
  const isDisabled = sql`EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${id} = ${subscriptionId} AND ${disabledAt} IS NOT NULL)`;
  return interruptAll(and(isOf(subscriptionId), isDisabled), now);
}

/** Ends the replays of a workspace whose access ends, in the transaction that cancels what they had scheduled. */
export function interruptReplaysOf(workspaceId: string, now: number): Part {
  return interruptAll(eq(replays.workspaceId, workspaceId), now);
}

function interruptAll(which: SQL | undefined, now: number): Part {
  return qb
    .update(replays)
    .set({ ...INTERRUPTED, endedAt: now })
    .where(and(which, isNull(replays.result)));
}

/** Notes that the scheduled job has looked at a replay, so that the others come first. */
export function touch(db: Database, replay: Replay, now: number): Promise<void> {
  return change(db, replay, { examinedAt: now });
}

/** Reads the replays that changes of subscriptions have begun, by id. */
export async function findReplays(
  db: Database,
  changes: readonly Pick<AuditEntry, "workspaceId" | "webhookId" | "after">[],
): Promise<Map<string, ReplayView>> {
  const begun = changes.filter(({ after }) => after?.replayId);
  if (begun.length === 0) return new Map();
  const keys = begun.map((one) => [one.workspaceId, one.webhookId, one.after?.replayId]);
  const isBegun = sql`(${replays.workspaceId}, ${replays.subscriptionId}, ${replays.id}) IN (
    SELECT value->>0, value->>1, value->>2 FROM json_each(${JSON.stringify(keys)}))`;
  const found = await query(db, qb.select().from(replays).where(isBegun));
  return new Map(found.map((replay) => [replay.id, toReplayView(replay)]));
}
