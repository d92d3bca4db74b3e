import { and, type SQL, sql } from "drizzle-orm";
import type { RedeliveryState } from "../contract/enumerations.ts";
import { REDELIVERIES_PER_SECOND } from "../contract/limits.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { counted, readAs, type Statements, transaction } from "../db/client.ts";
import { deliveries, events, type Priority, subscriptions } from "../db/schema.ts";
import { insertAttempts } from "../delivery/attempts.ts";
import { heldUntil } from "../delivery/order.ts";
import { IS_ACTIVE, IS_ITS_DELIVERY, lists, STATE } from "../subscriptions/conditions.ts";

/** The time between two redeliveries to a subscription. */
export const SPACING_MS = 1000 / REDELIVERIES_PER_SECOND;

/**
 * SQL expression: when the next redelivery to the subscription may be due. All of them share one
 * schedule, so that together they are ten per second.
 */
export const nextSlot = (now: number) => sql<number>`max(${now}, ${subscriptions.scheduledUntil})`;

/** SQL condition: the subscription lists the event's kind, and it is not a test event. */
export const IS_LISTED = sql`NOT ${events.test} AND ${lists(events.type)}`;

const HELD_UNTIL = heldUntil(sql`${deliveries.type}`, sql`${deliveries.priority}`);
/** SQL expression: when the post of a pending delivery may start. */
export const POSTED_FROM = sql`max(${deliveries.dueAt}, ${HELD_UNTIL})`;

/** SQL condition: the delivery waits after a failed attempt, for longer than for a slot in the schedule. */
export const isRetrying = (now: number) =>
  sql`coalesce(${STATE} = 'pending' AND ${deliveries.attempts} > 0 AND ${POSTED_FROM} > ${nextSlot(now)}, 0)`;

/**
 * SQL condition: the delivery, or its absence, is in one of the states. Once delivered, it counts as
 * delivered, even if it was then sent again and failed.
 */
export function isRequeueable(states: readonly RedeliveryState[], now: number): SQL {
  const isDelivered = sql`${STATE} <> 'pending' AND ${deliveries.deliveredEarlier}`;
  const state = sql`iif(${isRetrying(now)}, 'retrying', ${STATE})`;
  return sql`coalesce(iif(${isDelivered}, 'delivered', ${state}), 'missed') IN (SELECT value FROM json_each(${JSON.stringify(states)}))`;
}

/** Which events to requeue, and when. */
interface Requeuing {
  subscriptionId: string;
  /** In the order of their slots. */
  eventIds: readonly string[];
  /** SQL condition on the subscription, the event and its delivery, which may not exist. */
  isWanted: SQL;
  /** SQL expression: when the first slot is. */
  startsAt: SQL;
  /** 1 if they were named: then they do not wait for an endpoint that fails. */
  priority: Exclude<Priority, 0>;
  /**
   * SQL condition: the delivery is pending, and waits. It keeps its attempts and its turn, in case this one
   * fails.
   */
  isWaiting: SQL;
}

/**
 * Makes the deliveries of the events pending, spaced out, unless the subscription no longer lists
 * their kind. Does nothing if the subscription has ended in the meantime, because nobody would cancel
 * them. Reads how many there were.
 */
export function requeue(requeuing: Requeuing): Statements<number> {
  const { subscriptionId, eventIds, isWanted, startsAt, priority } = requeuing;
  const waits = requeuing.isWaiting;
  // Looking the subscription up from the pair makes SQLite go event by event; with a constant id,
  // it would scan all of the subscription's deliveries.
  const pairs = JSON.stringify(eventIds.map((eventId) => [subscriptionId, eventId]));
  const slots = sql`json_each(${pairs}) AS slot`;
  const subscription = sql`${subscriptions} ON ${and(sql`${subscriptions.id} = slot.value->>0`, IS_ACTIVE)}`;
  const isNamed = sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = slot.value->>1
    AND ${IS_LISTED}`;
  const named = sql`FROM ${slots} JOIN ${subscription} JOIN ${events} ON ${isNamed}`;
  const isNew = sql`NOT EXISTS (SELECT 1 FROM ${deliveries} WHERE ${IS_ITS_DELIVERY})`;
  const slotAt = sql`${startsAt} + slot.key * ${SPACING_MS}`;
  const again = sql`${named} JOIN ${deliveries} ON ${IS_ITS_DELIVERY}`;
  const isDelivered = sql`${isWanted} AND ${deliveries.state} = 'delivered' AND ${deliveries.lastAt} IS NOT NULL`;
  const { dueAt } = deliveries;
  const statements = transaction({
    owed: qb
      .update(events)
      .set({ owed: sql`json_insert(${events.owed}, '$[#]', ${subscriptionId})` })
      .from(sql`${slots} JOIN ${subscription}`)
      .where(sql`${isNamed} AND ${isNew}`),
    // The success that the delivery stores becomes one of its attempts.
    logged: insertAttempts(
      {
        at: sql`${deliveries.lastAt}`,
        outcome: sql`${deliveries.lastOutcome}`,
        status: sql`${deliveries.lastStatus}`,
        durationMs: sql`coalesce(${deliveries.lastDurationMs}, 0)`,
        response: sql`NULL`,
      },
      sql`${again} WHERE ${isDelivered}`,
    ),
    count: counted(
      insertFrom(
        deliveries,
        {
          subscriptionId: subscriptions.id,
          eventId: events.id,
          workspaceId: events.workspaceId,
          type: events.type,
          state: "pending",
          priority,
          attempts: sql`iif(${waits}, ${deliveries.attempts}, 0)`,
          dueAt: sql`iif(${waits}, min(${dueAt}, ${slotAt}), ${slotAt})`,
          turnAt: sql`iif(${waits}, coalesce(${deliveries.turnAt}, ${dueAt}), NULL)`,
          cancellations: subscriptions.cancellations,
          earlierAttempts: sql`coalesce(${deliveries.earlierAttempts} + iif(${waits}, 0, ${deliveries.attempts}), 0)`,
          deliveredEarlier: sql`coalesce(${deliveries.deliveredEarlier} OR ${deliveries.state} = 'delivered', 0)`,
        },
        sql`${named} LEFT JOIN ${deliveries} ON ${IS_ITS_DELIVERY} WHERE ${isWanted}
          ON CONFLICT (subscription_id, event_id) DO UPDATE
          SET state = excluded.state, priority = excluded.priority, attempts = excluded.attempts, due_at = excluded.due_at, turn_at = excluded.turn_at,
            cancellations = excluded.cancellations, settled_at = NULL,
            earlier_attempts = excluded.earlier_attempts, delivered_earlier = excluded.delivered_earlier`,
      ),
    ),
  });
  return readAs(statements, ({ count }) => count);
}
