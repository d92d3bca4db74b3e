import { and, eq, gt, gte, isNotNull, lt, or, type SQL, sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { UnknownInput } from "../contract/input-error.ts";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import type { Lane } from "../contract/pace.ts";
import type { RedeliveryState } from "../contract/platform.ts";
import { insertFrom, select, update } from "../db/builder.ts";
import { commit, type Database, inOrder, query, type Statements, write } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { resize } from "./event-size.ts";
import { unknownWebhook } from "./health.ts";
import { IS_OWED } from "./holds.ts";
import { enableSubscription, findSubscription } from "./subscriptions.ts";

const CHUNK_MS = (REDELIVERY_CHUNK * 1000) / REDELIVERIES_PER_SECOND;

/** Events of a subscription by their time; times are Unix milliseconds. */
export interface Range {
  since: number;
  /** Before this; null for no end. */
  until: number | null;
  /** What has become of them; what is pending is on its way already. */
  states: readonly RedeliveryState[];
}

/** Whatever has become of an event. */
export const ALL_STATES: readonly RedeliveryState[] = [
  "delivered",
  "exhausted",
  "cancelled",
  "missed",
];
const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/**
 * Owes a subscription again what it has missed since `since`: every event of a kind that it lists,
 * from its creation on, that was never delivered to it, whether nothing was owed (it was disabled)
 * or what was owed was cancelled or exhausted. Oldest first, spread over time by a bounded rate; ids
 * and bodies are those of the first time. Each step is one transaction, and calling it again adds
 * only what is still missing.
 *
 * @param since Unix milliseconds.
 * @returns how many deliveries are pending by it.
 */
export function redeliver(
  db: Database,
  subscriptionId: string,
  since: number,
  now: number,
): Promise<number> {
  return redeliverRange(db, subscriptionId, { since, until: null, states: UNDELIVERED }, now);
}

/**
 * Makes a disabled subscription active again; with `since`, it is also owed what it has missed since
 * then, Unix milliseconds.
 *
 * @returns how many deliveries are pending by that.
 * @throws UnknownInput when there is no such subscription.
 */
export async function enableAgain(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
): Promise<number> {
  const enabled = await enableSubscription(db, subscriptionId);
  if (enabled.length === 0) throw unknownWebhook();
  return since === null ? 0 : redeliver(db, subscriptionId, since, now);
}

/**
 * Owes a subscription again events by name, or those of a range.
 *
 * @returns how many deliveries are pending by that, and the lane to wake it in; null when nothing is
 *   owed to it: it is disabled, or without access.
 * @throws UnknownInput for a subscription that is not there, or an event that it could not get.
 */
export async function redeliverAgain(
  db: Database,
  subscriptionId: string,
  wanted: readonly string[] | Range,
  now: number,
): Promise<{ count: number; lane: Lane } | null> {
  const { isOwed, lane } = await findSubscription(db, subscriptionId, now);
  if (!isOwed) return null;
  const count =
    "since" in wanted
      ? await redeliverRange(db, subscriptionId, wanted, now)
      : await redeliverEvents(db, subscriptionId, wanted, now);
  return { count, lane };
}

/**
 * The same of events by name, whatever has become of them.
 *
 * @throws UnknownInput for one that is not of the subscription's workspace or of no kind that it lists.
 */
export async function redeliverEvents(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  now: number,
): Promise<number> {
  const named = JSON.stringify([...new Set(eventIds)]);
  const found = await query(
    db,
    select({ id: events.id, owable: isOwable(ALL_STATES, now).mapWith(Boolean) })
      .from(subscriptions)
      .innerJoin(sql`json_each(${named}) AS n`, sql`true`)
      .innerJoin(
        events,
        sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = n.value`,
      )
      .leftJoin(deliveries, IS_ITS_DELIVERY)
      .where(sql`${subscriptions.id} = ${subscriptionId} AND ${IS_LISTED}`)
      .orderBy(events.id),
  );
  const known = new Set(found.map(({ id }) => id));
  const unknown = eventIds.findIndex((id) => !known.has(id));
  if (unknown >= 0)
    throw new UnknownInput(
      `eventIds[${unknown}]`,
      "no such event, or of no kind that the subscription lists",
    );
  const ids = found.flatMap(({ id, owable }) => (owable ? [id] : []));
  if (ids.length > 0) await commit(db, oweAgain(subscriptionId, ids, ALL_STATES, now, now));
  return ids.length;
}

/** The same of a range and of states; nothing is added once the subscription is not active. */
export async function redeliverRange(
  db: Database,
  subscriptionId: string,
  range: Range,
  now: number,
): Promise<number> {
  let after = "";
  let count = 0;
  for (let startsAt = now; ; startsAt += CHUNK_MS) {
    const chunk = await nextEvents(db, subscriptionId, range, after, now);
    const last = chunk.at(-1);
    if (!last) return count;
    after = last.id;
    count += chunk.length;
    const ids = chunk.map(({ id }) => id);
    await commit(db, oweAgain(subscriptionId, ids, range.states, startsAt, now));
  }
}

const IS_LISTED = sql`EXISTS (SELECT 1 FROM json_each(${subscriptions.events}) AS kind WHERE kind.value = ${events.type})`;
const IS_ITS_DELIVERY = and(
  eq(deliveries.subscriptionId, subscriptions.id),
  eq(deliveries.eventId, events.id),
);

/**
 * True in SQL where the delivery to the subscription, or its absence, is in one of the states
 * and was when the call began: what this call itself has caused is not caused twice.
 */
function isOwable(states: readonly RedeliveryState[], now: number): SQL {
  const { state, generation, settledAt } = deliveries;
  return sql`(coalesce(CASE WHEN ${state} = 'pending' AND ${generation} < ${subscriptions.generation} THEN 'cancelled'
      ELSE ${state} END, 'missed') IN (SELECT value FROM json_each(${JSON.stringify(states)}))
    AND (${state} IS NOT 'delivered' OR ${settledAt} <= ${now}))`;
}

/** The next events of the range that the subscription lists, oldest first. */
function nextEvents(
  db: Database,
  subscriptionId: string,
  { since, until, states }: Range,
  after: string,
  now: number,
) {
  return query(
    db,
    select({ id: events.id })
      .from(subscriptions)
      .innerJoin(events, eq(events.workspaceId, subscriptions.workspaceId))
      .leftJoin(deliveries, IS_ITS_DELIVERY)
      .where(
        and(
          eq(subscriptions.id, subscriptionId),
          gt(events.id, after),
          or(gte(events.id, eventIdAt(since)), isNotNull(events.expiresAt)),
          gte(events.createdAt, sql`max(${subscriptions.createdAt}, ${since})`),
          until === null ? undefined : lt(events.createdAt, until),
          IS_OWED,
          IS_LISTED,
          isOwable(states, now),
        ),
      )
      .orderBy(events.id)
      .limit(REDELIVERY_CHUNK),
  );
}

/**
 * Makes pending what is owed for the events, in the order of delivery; nothing if the subscription
 * has ended meanwhile: that would be cancelled by nobody.
 */
function oweAgain(
  subscriptionId: string,
  eventIds: string[],
  states: readonly RedeliveryState[],
  startsAt: number,
  now: number,
): Statements<unknown> {
  const missed = sql`json_each(${JSON.stringify(eventIds)}) AS missed`;
  const dueAt = sql`${startsAt} + missed.key * ${1000 / REDELIVERIES_PER_SECOND}`;
  const isNew = sql`NOT EXISTS (SELECT 1 FROM ${deliveries}
    WHERE ${deliveries.subscriptionId} = ${subscriptionId} AND ${deliveries.eventId} = missed.value)`;
  const subscription = sql`${subscriptions} ON ${subscriptions.id} = ${subscriptionId} AND ${IS_OWED}`;
  const isMissed = sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = missed.value`;
  const missing = sql`FROM ${missed} JOIN ${subscription} JOIN ${events} ON ${isMissed}`;
  return inOrder([
    write(
      update(deliveries)
        .set({
          state: "pending",
          attempts: 0,
          dueAt,
          settledAt: null,
          generation: subscriptions.generation,
        })
        .from(sql`${missed} JOIN ${subscription}`)
        .where(
          sql`${deliveries.eventId} = missed.value AND ${deliveries.subscriptionId} = ${subscriptionId}
            AND ${isOwable(states, now)}`,
        ),
    ),
    resize(-1, sql`${missing} WHERE true`),
    write(
      update(events)
        .set({ owed: sql`json_insert(${events.owed}, '$[#]', ${subscriptionId})` })
        .from(sql`${missed} JOIN ${subscription}`)
        .where(sql`${isMissed} AND ${isNew}`),
    ),
    resize(1, sql`${missing} WHERE true`),
    write(
      insertFrom(
        deliveries,
        {
          subscriptionId: subscriptions.id,
          eventId: events.id,
          workspaceId: events.workspaceId,
          state: "pending",
          dueAt,
          generation: subscriptions.generation,
        },
        sql`${missing} WHERE ${isNew}`,
      ),
    ),
  ]);
}
