import { and, eq, gt, gte, isNotNull, lt, or, type SQL, sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import type { RedeliveryState } from "../contract/platform.ts";
import { insertFrom, select, update } from "../db/builder.ts";
import { type Database, inOrder, query, type Statements, write } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { resize } from "./event-size.ts";
import { IS_OWED } from "./holds.ts";

/*
 * Which events a subscription may be owed again, and the statements that owe them.
 */

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

/** True in SQL where the delivery waits, for itself or because the subscription fails. */
function isWaiting(now: number): SQL {
  const { state, generation, dueAt } = deliveries;
  return sql`coalesce(${state} = 'pending' AND ${generation} = ${subscriptions.generation}
    AND max(${dueAt}, ${subscriptions.nextAt}) > ${now}, 0)`;
}

/** Those of the events by name that the subscription lists, and what has become of each. */
export function findNamed(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  now: number,
) {
  const named = JSON.stringify([...new Set(eventIds)]);
  return query(
    db,
    select({
      id: events.id,
      isOwable: isOwable(ALL_STATES, now).mapWith(Boolean),
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
      .orderBy(events.id),
  );
}

/** The next events of the range that the subscription lists and may be owed again, oldest first. */
export function listOwable(
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
 * The subscription beside each of the events, as JSON. Where it is looked up by that, SQLite goes from
 * event to event; where it is known by itself, it goes through all that the subscription has.
 */
function pairsOf(subscriptionId: string, eventIds: string[]): string {
  return JSON.stringify(eventIds.map((eventId) => [subscriptionId, eventId]));
}

/**
 * Makes pending what is owed for the events, in the order of delivery; nothing if the subscription
 * has ended meanwhile: that would be cancelled by nobody.
 */
export function oweAgain(
  subscriptionId: string,
  eventIds: string[],
  states: readonly RedeliveryState[],
  startsAt: number,
  now: number,
): Statements<unknown> {
  const missed = sql`json_each(${pairsOf(subscriptionId, eventIds)}) AS missed`;
  const dueAt = sql`${startsAt} + missed.key * ${1000 / REDELIVERIES_PER_SECOND}`;
  const isNew = sql`NOT EXISTS (SELECT 1 FROM ${deliveries}
    WHERE ${deliveries.subscriptionId} = ${subscriptionId} AND ${deliveries.eventId} = missed.value->>1)`;
  const subscription = sql`${subscriptions} ON ${subscriptions.id} = missed.value->>0 AND ${IS_OWED}`;
  const isMissed = sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = missed.value->>1`;
  const missing = sql`FROM ${missed} JOIN ${subscription} JOIN ${events} ON ${isMissed}`;
  return inOrder([
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
        sql`${deliveries.eventId} = missed.value->>1 AND ${deliveries.subscriptionId} = ${subscriptions.id}
            AND ${isOwable(states, now)}`,
      ),
    resize(-1, sql`${missing} WHERE true`),
    update(events)
      .set({ owed: sql`json_insert(${events.owed}, '$[#]', ${subscriptionId})` })
      .from(sql`${missed} JOIN ${subscription}`)
      .where(sql`${isMissed} AND ${isNew}`),
    resize(1, sql`${missing} WHERE true`),
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
  ]);
}

/** Makes due at once what of the events waits. */
export function hasten(
  subscriptionId: string,
  eventIds: string[],
  now: number,
): Statements<number> {
  const { eventId, dueAt } = deliveries;
  return write(
    update(deliveries)
      .set({ dueAt: sql`min(${dueAt}, ${now})` })
      .from(
        sql`json_each(${pairsOf(subscriptionId, eventIds)}) AS n JOIN ${subscriptions} ON ${subscriptions.id} = n.value->>0`,
      )
      .where(
        sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${eventId} = n.value->>1 AND ${isWaiting(now)}`,
      ),
  );
}

/** Ends the wait of a closed subscription: its next probe is due. */
export function endWait(subscriptionId: string, now: number): Statements<number> {
  const { id, nextAt } = subscriptions;
  return write(
    update(subscriptions)
      .set({ nextAt: now })
      .where(and(eq(id, subscriptionId), gt(nextAt, now))),
  );
}
