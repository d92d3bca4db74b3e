import { and, eq, gt, gte, lt, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import type { RedeliveryState } from "../contract/platform.ts";
import { insertFrom, select, update } from "../db/builder.ts";
import {
  counted,
  type Database,
  inOrder,
  query,
  readAs,
  type Statements,
  write,
} from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { resize } from "./event-size.ts";
import { IS_OWED } from "./holds.ts";

/* Which events a subscription may be owed again, and the statements that do so. */

/** A range of a subscription's events; times are Unix milliseconds. */
export interface Range {
  since: number;
  /** Exclusive; null for no end. */
  until: number | null;
  /**
   * The states to deliver again; pending deliveries are not among them, because they will be sent
   * anyway.
   */
  states: readonly RedeliveryState[];
}

/** Every state that may be delivered again. */
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
 * SQL condition: the delivery, or its absence, is in one of the states and was when the call began,
 * so that the call does not repeat its own work.
 */
function isOwable(states: readonly RedeliveryState[], now: number): SQL {
  const { state, generation, settledAt } = deliveries;
  return sql`(coalesce(CASE WHEN ${state} = 'pending' AND ${generation} < ${subscriptions.generation} THEN 'cancelled'
      ELSE ${state} END, 'missed') IN (SELECT value FROM json_each(${JSON.stringify(states)}))
    AND (${state} IS NOT 'delivered' OR ${settledAt} <= ${now}))`;
}

/** SQL condition: the pending delivery is not due yet, or its subscription is backing off. */
function isWaiting(now: number): SQL {
  const { state, generation, dueAt } = deliveries;
  return sql`coalesce(${state} = 'pending' AND ${generation} = ${subscriptions.generation}
    AND max(${dueAt}, ${subscriptions.nextAt}) > ${now}, 0)`;
}

/**
 * The named events of a kind the subscription lists, and whether each may be owed again or is
 * waiting.
 */
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

/**
 * The next events in the range that the subscription lists and may be owed again, oldest first.
 *
 * @param after the id of the event before the first to read, so that older ones are not.
 */
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
 * Pairs each event with the subscription, as JSON. Looking the subscription up from the pair makes
 * SQLite go event by event; with a constant id, it would scan all of the subscription's deliveries.
 */
function pairsOf(subscriptionId: string, eventIds: string[]): string {
  return JSON.stringify(eventIds.map((eventId) => [subscriptionId, eventId]));
}

const SPACING_MS = 1000 / REDELIVERIES_PER_SECOND;
const queued = alias(deliveries, "queued");

/**
 * SQL expression: when the subscription's next redelivery may be due, which is after all that are
 * scheduled. Only redeliveries are due in the future before their first attempt.
 */
function endOfQueue(subscriptionId: string, now: number): SQL {
  return sql`coalesce((SELECT max(${now}, ${queued.dueAt} + ${SPACING_MS}) FROM ${deliveries} AS queued
    WHERE ${queued.subscriptionId} = ${subscriptionId} AND ${queued.state} = 'pending' AND ${queued.attempts} = 0
      AND ${queued.generation} = (SELECT ${subscriptions.generation} FROM ${subscriptions} WHERE ${subscriptions.id} = ${subscriptionId})
    ORDER BY ${queued.dueAt} DESC LIMIT 1), ${now})`;
}

/** The due time of a delivery that has just been inserted, until the call schedules all of them. */
const UNTIMED = -1;

/**
 * Makes the events' deliveries pending, spaced out in order. Does nothing if the subscription has
 * ended in the meantime, because nobody would cancel them. Reads how many it made pending.
 *
 * @param isFirst whether they go ahead of the redeliveries that are already scheduled.
 */
export function oweAgain(
  subscriptionId: string,
  eventIds: string[],
  states: readonly RedeliveryState[],
  isFirst: boolean,
  now: number,
): Statements<number> {
  const missed = sql`json_each(${pairsOf(subscriptionId, eventIds)}) AS missed`;
  const startsAt = isFirst ? sql`${now}` : endOfQueue(subscriptionId, now);
  const isNew = sql`NOT EXISTS (SELECT 1 FROM ${deliveries}
    WHERE ${deliveries.subscriptionId} = ${subscriptionId} AND ${deliveries.eventId} = missed.value->>1)`;
  const subscription = sql`${subscriptions} ON ${subscriptions.id} = missed.value->>0 AND ${IS_OWED}`;
  const isMissed = sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = missed.value->>1`;
  const missing = sql`FROM ${missed} JOIN ${subscription} JOIN ${events} ON ${isMissed}`;
  const statements = inOrder([
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
        dueAt: UNTIMED,
        generation: subscriptions.generation,
      },
      sql`${missing} WHERE ${isNew}`,
    ),
    counted(
      update(deliveries)
        .set({
          state: "pending",
          attempts: 0,
          dueAt: sql`${startsAt} + missed.key * ${SPACING_MS}`,
          settledAt: null,
          generation: subscriptions.generation,
        })
        .from(sql`${missed} JOIN ${subscription}`)
        .where(
          sql`${deliveries.eventId} = missed.value->>1 AND ${deliveries.subscriptionId} = ${subscriptions.id}
            AND (${isOwable(states, now)} OR ${deliveries.dueAt} = ${UNTIMED})`,
        ),
    ),
  ]);
  return readAs(statements, (results) => results[4]);
}

/**
 * Makes waiting deliveries of the events due from now on, spaced out in order. Reads how many it
 * brought forward.
 */
export function bringForward(
  subscriptionId: string,
  eventIds: string[],
  now: number,
): Statements<number> {
  const { eventId, dueAt } = deliveries;
  const turn = sql`${now} + n.key * ${SPACING_MS}`;
  return counted(
    update(deliveries)
      .set({ dueAt: sql`min(${dueAt}, ${turn})` })
      .from(
        sql`json_each(${pairsOf(subscriptionId, eventIds)}) AS n JOIN ${subscriptions} ON ${subscriptions.id} = n.value->>0`,
      )
      .where(
        sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${eventId} = n.value->>1 AND ${isWaiting(now)}
            AND max(${dueAt}, ${subscriptions.nextAt}) > ${turn}`,
      ),
  );
}

/** Ends the backoff wait of a subscription: its next probe is due now. */
export function endWait(subscriptionId: string, now: number): Statements<unknown> {
  const { id, nextAt } = subscriptions;
  return write(
    update(subscriptions)
      .set({ nextAt: now })
      .where(and(eq(id, subscriptionId), gt(nextAt, now))),
  );
}
