import { and, type Column, eq, gt, isNotNull, lt, type SQL, sql } from "drizzle-orm";
import type { RedeliveryState } from "../../contract/enumerations.ts";
import { eventIdAt } from "../../contract/ids.ts";
import { InputError } from "../../contract/input-error.ts";
import { SWEEP_MAX } from "../../contract/limits.ts";
import { MINUTE_MS } from "../../contract/time.ts";
import { qb } from "../../db/builder.ts";
import { counted, type Database, inOrder, readAs, type Statements } from "../../db/client.ts";
import { commitOnce } from "../../db/commit-once.ts";
import { deliveries, events, type StoredRange, subscriptions } from "../../db/schema.ts";
import { findPosition, updatePosition } from "../../db/sweep-positions.ts";
import { sleep } from "../../timing.ts";
import { isWritable } from "../../workspaces/moves.ts";
import { IS_ACTIVE, IS_ITS_DELIVERY } from "../conditions.ts";
import { laneOf } from "../dispatch/policy.ts";
import type { Wake } from "../dispatch/wake.ts";
import { IS_LISTED, isRequeueable, nextSlot, requeue, SPACING_MS } from "./requeue.ts";

/** Maximum ranges of one subscription that are being redelivered; further ones are refused. */
export const REDELIVERY_RANGES_MAX = 10;
/** How far ahead the events of a range are scheduled: until the next sweep. */
export const REDELIVERY_AHEAD_MS = MINUTE_MS;
/** Maximum events, or failed deliveries, that one step of a range examines. */
export const REDELIVERY_EXAMINED_MAX = 1_000;
/** How long a sweep pauses after each step of a range, so that others can use the database. */
const REDELIVERY_PAUSE_MS = 100;

/*
 * Redelivering ranges of events. A range may have any number of them, so it is stored with its
 * subscription and processed in steps: each examines a limited number of events, and schedules
 * those that are to be sent before the next sweep. The call that adds a range takes the first step,
 * and sweeps take the others.
 */

/** A range of a subscription's events; times are Unix milliseconds. */
export interface Range {
  since: number;
  /** Exclusive; null for no end. */
  until: number | null;
  /** The states to deliver again; pending deliveries will be sent anyway. */
  states: readonly RedeliveryState[];
}

export function tooManyRanges(): InputError {
  const problem = `${REDELIVERY_RANGES_MAX} ranges of it are being redelivered already`;
  return new InputError("webhookId", problem, { retry_after_seconds: REDELIVERY_AHEAD_MS / 1000 });
}

/**
 * Adds a range to those that a subscription is redelivered, unless it is there already. Reads whether it
 * is there now: it is not if there are too many, or the subscription has ended.
 *
 * @param createdAt when the subscription was created; it gets nothing from before that.
 */
export function addRange(
  subscriptionId: string,
  createdAt: number,
  { since, until, states }: Range,
  now: number,
): Statements<boolean> {
  const from = eventIdAt(Math.max(since, createdAt));
  const range: StoredRange = {
    from,
    before: until === null ? null : eventIdAt(until),
    states: [...new Set(states)].toSorted(),
    askedAt: now,
    after: from,
  };
  const { id, ranges } = subscriptions;
  const stored = sql`coalesce(${ranges}, '[]')`;
  const isThere = sql`EXISTS (SELECT 1 FROM json_each(${stored}) AS r WHERE r.value->>'from' = ${range.from}
    AND r.value->>'before' IS ${range.before} AND r.value->>'states' = ${JSON.stringify(range.states)})`;
  const added = counted(
    qb
      .update(subscriptions)
      .set({
        ranges: sql`iif(${isThere}, ${ranges}, json_insert(${stored}, '$[#]', json(${JSON.stringify(range)})))`,
      })
      .where(
        sql`${eq(id, subscriptionId)} AND ${IS_ACTIVE}
          AND (${isThere} OR json_array_length(${stored}) < ${REDELIVERY_RANGES_MAX})`,
      ),
  );
  return readAs(added, (count) => count > 0);
}

export interface Step {
  /** How many events it scheduled. */
  count: number;
  /** Whether events of ranges are left to be examined. */
  more: boolean;
  /** Whether another step can follow immediately. */
  canContinue: boolean;
}

const NOTHING: Step = { count: 0, more: false, canContinue: false };

/** SQL condition: a step can be taken for the subscription. */
const IS_OPEN = and(
  IS_ACTIVE,
  // Void deliveries are not requeued before they are cancelled.
  sql`NOT ${subscriptions.cancelling}`,
  isWritable(subscriptions.workspaceId),
) as SQL;

/**
 * Takes a step in the first range of a subscription: examines up to `REDELIVERY_EXAMINED_MAX` events
 * in two queries and one transaction, and schedules those that are due within `REDELIVERY_AHEAD_MS`.
 * If another step was taken in the meantime, it does nothing.
 */
export async function takeStep(db: Database, subscriptionId: string, now: number): Promise<Step> {
  const { id, ranges } = subscriptions;
  const [found] = await db
    .select({
      stored: sql<string>`${ranges}`,
      isOpen: sql`${IS_OPEN}`.mapWith(Boolean),
      startsAt: nextSlot(now),
    })
    .from(subscriptions)
    .where(and(eq(id, subscriptionId), isNotNull(ranges)));
  if (!found) return NOTHING;
  const [range, ...others] = JSON.parse(found.stored) as [StoredRange, ...StoredRange[]];
  const room = Math.ceil((now + REDELIVERY_AHEAD_MS - found.startsAt) / SPACING_MS);
  if (!found.isOpen || room <= 0) return { ...NOTHING, more: true };
  const { ids, last, isLast } = await examine(db, subscriptionId, range);
  const scheduled = ids.slice(0, room);
  const isFull = scheduled.length < ids.length;
  const after = isFull ? scheduled.at(-1) : last;
  const left = isLast && !isFull ? others : [{ ...range, after: after ?? range.after }, ...others];
  // Otherwise another step was taken in the meantime, or the subscription was disabled.
  const isCurrent = sql`${ranges} = ${found.stored} AND ${IS_OPEN}`;
  const statements = inOrder([
    requeue({
      subscriptionId,
      eventIds: scheduled,
      condition: isCurrent,
      isWanted: isRequeueable(range.states, range.askedAt),
      startsAt: nextSlot(now),
    }),
    counted(
      qb
        .update(subscriptions)
        .set({
          ranges: left.length > 0 ? left : null,
          scheduledUntil: sql`${nextSlot(now)} + ${scheduled.length * SPACING_MS}`,
        })
        .where(sql`${eq(id, subscriptionId)} AND ${isCurrent}`),
    ),
  ]);
  // After a lost reply, the count is unknown: probably all of them.
  const [count, steps] = (await commitOnce(db, statements, now)) ?? [scheduled.length, 1];
  const more = left.length > 0;
  return steps > 0 ? { count, more, canContinue: more && !isFull } : { ...NOTHING, more: true };
}

/**
 * Examines the next part of a range, at most `REDELIVERY_EXAMINED_MAX` events.
 *
 * @returns the ids of those to be redelivered, oldest first; the last that was examined, null if there
 *   was none; and whether the range ends there.
 */
async function examine(
  db: Database,
  subscriptionId: string,
  { states, askedAt, after, before }: StoredRange,
) {
  const { eventId, state } = deliveries;
  const isInRange = (column: Column) =>
    and(gt(column, after), before === null ? undefined : lt(column, before));
  const isFailed = (one: RedeliveryState) => one === "exhausted" || one === "cancelled";
  const next = states.every(isFailed)
    ? // Few deliveries fail; without INDEXED BY, SQLite would scan all of them by the primary key.
      sql`SELECT ${eventId} AS id, ${IS_LISTED} AND ${isRequeueable(states, askedAt)} AS isRequeueable
        FROM ${subscriptions} CROSS JOIN ${deliveries} INDEXED BY deliveries_failed
          ON ${deliveries.subscriptionId} = ${subscriptions.id}
        LEFT JOIN ${events} ON ${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = ${eventId}
        WHERE ${eq(subscriptions.id, subscriptionId)} AND ${isInRange(eventId)}
          AND ${state} IN ('exhausted', 'cancelled')
        ORDER BY ${eventId}`
    : sql`SELECT ${events.id} AS id, ${IS_LISTED} AND ${isRequeueable(states, askedAt)} AS isRequeueable
        FROM ${subscriptions} CROSS JOIN ${events} ON ${events.workspaceId} = ${subscriptions.workspaceId}
        LEFT JOIN ${deliveries} ON ${IS_ITS_DELIVERY}
        WHERE ${eq(subscriptions.id, subscriptionId)} AND ${isInRange(events.id)}
        ORDER BY ${events.id}`;
  const [part] = await db.all<{ ids: string; last: string | null; examined: number }>(sql`
      SELECT json_group_array(id) FILTER (WHERE isRequeueable) AS ids, max(id) AS last, count(*) AS examined
      FROM (${next} LIMIT ${REDELIVERY_EXAMINED_MAX})`);
  if (!part) throw new Error("an aggregate returned no row");
  const { ids, last, examined } = part;
  return {
    ids: (JSON.parse(ids) as string[]).toSorted(),
    last,
    isLast: examined < REDELIVERY_EXAMINED_MAX,
  };
}

const PART = "ranges";

/**
 * Takes steps in the ranges of all subscriptions, in turn, until all that is due before the next
 * sweep is scheduled or `hasTime` returns false. It pauses after each, so that all of them together
 * take up little of the database's time.
 *
 * @returns the subscriptions for which something was scheduled.
 * @throws the first error, once the others have had their steps.
 */
export async function takeSteps(
  db: Database,
  now: number,
  hasTime: () => boolean,
  pauseMs = REDELIVERY_PAUSE_MS,
): Promise<Wake[]> {
  const wakes: Wake[] = [];
  const failures: unknown[] = [];
  let reached = await findPosition(db, PART);
  const queue = await listOpen(db, reached, now);
  for (let next = queue.shift(); next && hasTime(); next = queue.shift()) {
    reached = next.subscriptionId;
    const { count, canContinue } = await takeStep(db, reached, now).catch((error: unknown) => {
      failures.push(error);
      return NOTHING;
    });
    if (count > 0) wakes.push(next);
    if (canContinue) queue.push(next);
    await sleep(pauseMs);
  }
  await updatePosition(db, PART, reached);
  if (failures.length > 0) throw failures[0];
  return wakes;
}

/** Subscriptions for which steps can be taken; those behind `position` come first. */
async function listOpen(db: Database, position: string, now: number): Promise<Wake[]> {
  const { id, slow, nextAt, ranges } = subscriptions;
  const found = await db
    .select({ id, slow, nextAt })
    .from(subscriptions)
    .where(and(isNotNull(ranges), IS_OPEN, lt(nextSlot(now), now + REDELIVERY_AHEAD_MS)))
    .orderBy(sql`${id} <= ${position}`, id)
    .limit(SWEEP_MAX);
  return found.map((row) => ({ subscriptionId: row.id, lane: laneOf(row) }));
}
