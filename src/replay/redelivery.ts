import { and, eq, gt, lt, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { RedeliveryState } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { unknownInput } from "../contract/input-error.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, type Executable, withoutRetries } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import type { Lane } from "../delivery/policy.ts";
import { IS_ACTIVE, IS_ITS_DELIVERY, STATE } from "../subscriptions/conditions.ts";
import {
  enableSubscription,
  findSubscription,
  type KnownSubscription,
  knownSubscription,
} from "../subscriptions/subscriptions.ts";
import {
  IS_LISTED,
  isRequeueable,
  isRetrying,
  nextSlot,
  POSTED_FROM,
  requeue,
  SPACING_MS,
} from "./requeue.ts";

/** What an enabled subscription has missed. */
const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/** Maximum events that one call of a range examines. */
export const REDELIVERY_EXAMINED_MAX = 1_000;
/** How long a named event waits at most for what is scheduled of ranges. */
const NAMED_WAIT_MAX_MS = MINUTE_MS;

/** A range of a subscription's events; times are Unix milliseconds. */
export interface Range {
  since: number;
  /** Exclusive; null for no end. */
  until: number | null;
  /** The states to deliver again; what is pending and was not tried yet will be sent anyway. */
  states: readonly RedeliveryState[];
  /** Where the previous call stopped, and when the first one was made; null for the first. */
  after?: Position | null;
}

export interface Redelivered {
  /** How many events were scheduled. */
  count: number;
  /** Where the next call of the range continues; null once all of it was examined. */
  next: Position | null;
  /** The lane to wake the subscription in. */
  lane: Lane;
}

/**
 * Re-enables a disabled subscription. With `since`, it also gets what it has missed since then: every
 * event of a kind it lists, created after the subscription, that was never delivered to it.
 *
 * @throws InputError if there is no such subscription.
 */
export async function enableAgain(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
  after: Position | null = null,
): Promise<Redelivered> {
  const { subscription } = await commit(db, {
    enabled: enableSubscription(subscriptionId),
    subscription: knownSubscription(subscriptionId, now),
  });
  if (since === null || !subscription.isActive)
    return { count: 0, next: null, lane: subscription.lane };
  const range = { since, until: null, states: UNDELIVERED, after };
  return redeliverRange(db, subscription, range, now);
}

/**
 * Redelivers events to a subscription. Named ones do not wait for an endpoint that fails; a range ends
 * its wait: the caller has presumably repaired it.
 *
 * @returns null if it is disabled or without access: then it gets nothing.
 * @throws InputError for a subscription that does not exist, or an event that it could not receive.
 */
export async function redeliverAgain(
  db: Database,
  subscriptionId: string,
  wanted: readonly string[] | Range,
  now: number,
): Promise<Redelivered | null> {
  const subscription = await findSubscription(db, subscriptionId, now);
  if (!subscription.isActive) return null;
  if ("since" in wanted) return redeliverRange(db, subscription, wanted, now);
  const count = await redeliverEvents(db, subscriptionId, wanted, now);
  return { count, next: null, lane: subscription.lane };
}

/**
 * Schedules a part of a range, oldest event first, after what is already scheduled. Tried once: called
 * again, it schedules what the lost call did not.
 */
async function redeliverRange(
  db: Database,
  subscription: KnownSubscription,
  { since, until, states, after }: Range,
  now: number,
): Promise<Redelivered> {
  const { id, createdAt, lane } = subscription;
  // What is recorded while the caller goes on is no part of the range.
  const askedAt = after?.at ?? now;
  const from = eventIdAt(Math.max(since, createdAt));
  const before = eventIdAt(Math.min(until ?? Number.POSITIVE_INFINITY, askedAt + 1));
  const part = await examine(db, id, states, after?.id ?? from, before, now);
  const { count } = await commit(withoutRetries(db), {
    count: requeue({
      subscriptionId: id,
      eventIds: part.ids,
      isWanted: isRequeueable(states, now),
      startsAt: nextSlot(now),
      priority: 2,
      isWaiting: isRetrying(now),
    }),
    slots: takeSlots(id, part.ids.length, nextSlot(now)),
    wait: endWait(id, now),
  });
  const next = part.isLast || part.last === null ? null : { at: askedAt, id: part.last };
  return { count, next, lane };
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
  states: readonly RedeliveryState[],
  after: string,
  before: string,
  now: number,
) {
  const next = sql`SELECT ${events.id} AS id, ${IS_LISTED} AND ${isRequeueable(states, now)} AS isRequeueable
    FROM ${subscriptions} CROSS JOIN ${events} ON ${events.workspaceId} = ${subscriptions.workspaceId}
    LEFT JOIN ${deliveries} ON ${IS_ITS_DELIVERY}
    WHERE ${eq(subscriptions.id, subscriptionId)} AND ${gt(events.id, after)} AND ${lt(events.id, before)}
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

/**
 * Redelivers events by id, whatever their state; those that are waiting are brought forward. They are
 * due after what is already scheduled, but at most a minute from now. Tried once.
 *
 * @returns how many it made pending or brought forward.
 * @throws InputError for an event of another workspace, or of a kind the subscription does not list.
 */
async function redeliverEvents(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  now: number,
): Promise<number> {
  const found = await findNamed(db, subscriptionId, eventIds, now);
  const known = new Set(found.map((event) => event.id));
  const unknown = eventIds.findIndex((id) => !known.has(id));
  if (unknown >= 0)
    throw unknownInput(
      ["eventIds", unknown],
      "no such event, or a test, or the subscription does not list its kind",
    );
  const wanted = found
    .filter((event) => event.isRequeueable || event.isWaiting)
    .map(({ id }) => id);
  if (wanted.length === 0) return 0;
  const { count } = await commit(withoutRetries(db), {
    count: requeue({
      subscriptionId,
      eventIds: wanted,
      isWanted: sql`(${isRequeueable(RedeliveryState.options, now)} OR ${isWaiting(now)})`,
      startsAt: namedSlot(now),
      priority: 1,
      isWaiting: isWaiting(now),
    }),
    slots: takeSlots(subscriptionId, wanted.length, namedSlot(now)),
  });
  return count;
}

/** SQL expression: when the next named event may be due. */
const namedSlot = (now: number) => sql`min(${nextSlot(now)}, ${now + NAMED_WAIT_MAX_MS})`;

/**
 * SQL condition: the delivery waits for a retry, or its subscription is backing off. False for one that
 * has a slot in the schedule, which it keeps.
 */
function isWaiting(now: number): SQL {
  return sql`coalesce(${STATE} = 'pending' AND ${POSTED_FROM} > ${now} AND ${POSTED_FROM} >= ${namedSlot(now)}, 0)`;
}

/**
 * The named events of a kind the subscription lists, and whether each may be requeued or is waiting.
 * Those that are due first come first.
 */
async function findNamed(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  now: number,
) {
  const named = JSON.stringify([...new Set(eventIds)]);
  return db
    .select({
      id: events.id,
      isRequeueable: isRequeueable(RedeliveryState.options, now).mapWith(Boolean),
      isWaiting: isWaiting(now).mapWith(Boolean),
    })
    .from(subscriptions)
    .innerJoin(sql`json_each(${named}) AS n`, sql`true`)
    .innerJoin(
      events,
      sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = n.value`,
    )
    .leftJoin(deliveries, IS_ITS_DELIVERY)
    .where(sql`${subscriptions.id} = ${subscriptionId} AND ${IS_LISTED}`)
    .orderBy(sql`iif(${isWaiting(now)}, ${deliveries.dueAt}, NULL) NULLS LAST`, events.id);
}

/** Notes that events have taken slots of the schedule, from `startsAt` on. */
function takeSlots(subscriptionId: string, slots: number, startsAt: SQL): Executable {
  const { id, scheduledUntil } = subscriptions;
  return qb
    .update(subscriptions)
    .set({ scheduledUntil: sql`max(${scheduledUntil}, ${startsAt} + ${slots * SPACING_MS})` })
    .where(and(eq(id, subscriptionId), IS_ACTIVE));
}

/** Ends the backoff wait of a subscription: its next probe is due now. */
function endWait(subscriptionId: string, now: number): Executable {
  const { id, nextAt, rejectedUntil } = subscriptions;
  return qb
    .update(subscriptions)
    .set({ nextAt: sql`min(${nextAt}, ${now})`, rejectedUntil: sql`min(${rejectedUntil}, ${now})` })
    .where(and(eq(id, subscriptionId), gt(sql`max(${nextAt}, ${rejectedUntil})`, now)));
}
