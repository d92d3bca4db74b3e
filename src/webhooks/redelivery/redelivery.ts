import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import { RedeliveryState } from "../../contract/enumerations.ts";
import { unknownInput } from "../../contract/input-error.ts";
import { qb } from "../../db/builder.ts";
import { commit, type Database, type Executable, inOrder } from "../../db/client.ts";
import { commitOnce } from "../../db/commit-once.ts";
import { deliveries, events, subscriptions } from "../../db/schema.ts";
import { IS_ACTIVE, IS_ITS_DELIVERY } from "../conditions.ts";
import type { Lane } from "../dispatch/policy.ts";
import {
  enableSubscription,
  findSubscription,
  type KnownSubscription,
  knownSubscription,
} from "../subscriptions.ts";
import { addRange, type Range, type Step, takeStep, tooManyRanges } from "./ranges.ts";
import { IS_LISTED, isRequeueable, nextSlot, requeue, SPACING_MS } from "./requeue.ts";

/** What an enabled subscription has missed. */
const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

export interface Redelivered extends Pick<Step, "count" | "more"> {
  /** The lane to wake the subscription in. */
  lane: Lane;
}

/**
 * Re-enables a disabled subscription. With `since`, it also gets what it has missed since then: every
 * event of a kind it lists, created after the subscription, that was never delivered to it. Calling it
 * again adds only what is still missing.
 *
 * @throws InputError if there is no such subscription.
 */
export async function enableAgain(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
): Promise<Redelivered> {
  const enabled = inOrder([
    enableSubscription(subscriptionId),
    knownSubscription(subscriptionId, now),
  ]);
  const [, subscription] = await commit(db, enabled);
  if (since === null || !subscription.isActive)
    return { count: 0, more: false, lane: subscription.lane };
  const range = { since, until: null, states: UNDELIVERED };
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
  return { count, more: false, lane: subscription.lane };
}

/**
 * Redelivers a range, oldest event first, after earlier ranges. Schedules the first events; sweeps
 * schedule the others.
 */
async function redeliverRange(
  db: Database,
  { id, createdAt, lane }: KnownSubscription,
  range: Range,
  now: number,
): Promise<Redelivered> {
  const statements = inOrder([addRange(id, createdAt, range, now), endWait(id, now)]);
  const [isAdded] = await commit(db, statements);
  if (!isAdded) throw tooManyRanges();
  const { count, more } = await takeStep(db, id, now);
  return { count, more, lane };
}

/**
 * Redelivers events by id, whatever their state; those that are waiting are brought forward. They are
 * due after what is already scheduled, which for ranges is at most `REDELIVERY_AHEAD_MS` ahead.
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
  const statements = inOrder([
    requeue({
      subscriptionId,
      eventIds: wanted,
      isWanted: sql`(${isRequeueable(RedeliveryState.options, now)} OR ${isWaiting(now)})`,
      startsAt: nextSlot(now),
      isWaiting: isWaiting(now),
    }),
    takeSlots(subscriptionId, wanted.length, now),
  ]);
  const [count] = (await commitOnce(db, statements, now)) ?? [wanted.length];
  return count;
}

/**
 * SQL condition: the delivery waits for a retry, or its subscription is backing off. False for one that
 * has a slot in the schedule, which it keeps.
 */
function isWaiting(now: number): SQL {
  const { state, cancellations, dueAt } = deliveries;
  const due = sql`max(${dueAt}, ${subscriptions.nextAt}, ${subscriptions.rejectedUntil})`;
  return sql`coalesce(${state} = 'pending' AND ${cancellations} = ${subscriptions.cancellations}
    AND ${due} > ${now} AND ${due} >= ${nextSlot(now)}, 0)`;
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

/** Notes that events have taken slots of the schedule. */
function takeSlots(subscriptionId: string, slots: number, now: number): Executable {
  return qb
    .update(subscriptions)
    .set({ scheduledUntil: sql`${nextSlot(now)} + ${slots * SPACING_MS}` })
    .where(and(eq(subscriptions.id, subscriptionId), IS_ACTIVE));
}

/** Ends the backoff wait of a subscription: its next probe is due now. */
function endWait(subscriptionId: string, now: number): Executable {
  const { id, nextAt, rejectedUntil } = subscriptions;
  return qb
    .update(subscriptions)
    .set({ nextAt: sql`min(${nextAt}, ${now})`, rejectedUntil: sql`min(${rejectedUntil}, ${now})` })
    .where(and(eq(id, subscriptionId), gt(sql`max(${nextAt}, ${rejectedUntil})`, now)));
}
