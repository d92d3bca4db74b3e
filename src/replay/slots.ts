import { and, eq, type SQL, sql } from "drizzle-orm";
import { REDELIVERIES_PER_SECOND } from "../contract/limits.ts";
import { excluded, insertFrom, mapColumns, qb } from "../db/builder.ts";
import { combine, counted, type Part, readAs, type Statements } from "../db/client.ts";
import { deliveries, events, type Priority, subscriptions } from "../db/schema.ts";
import { isActive, listsType } from "../db/states.ts";
import { insertAttempts } from "../delivery/attempts.ts";

/**
 * The time between two deliveries that are sent again. All replays of a subscription share its slots, so that together
 * they send ten per second. All resends share others, so that they need not wait for a long replay.
 */
const SPACING_MS = 1000 / REDELIVERIES_PER_SECOND;

/** The column of a subscription that stores when the next free slot is: of its replays, or of its resends. */
type SlotsColumn = "replaySlotsUntil" | "manualSlotsUntil";

/** SQL expression: when the next free slot of the subscription is. */
export function nextSlotAt(column: SlotsColumn, now: number): SQL {
  return sql`max(${now}, ${subscriptions[column]})`;
}

/** An event to send again, with its delivery as it was read; the fields are null if it had no delivery. */
export interface ResentEvent {
  eventId: string;
  storedState: string | null;
  attempts: number | null;
  dueAt: number | null;
  /** Whether the delivery is pending. Then it keeps its attempts, and its due time in case this attempt fails. */
  waits: boolean;
}

const OVERWRITTEN_COLUMNS = [
  "state",
  "priority",
  "attempts",
  "dueAt",
  "scheduledAt",
  "pendingSinceEpoch",
  "settledAt",
  "deliveredEarlier",
] as const;

/**
 * Makes the deliveries of the events pending, each in its slot, in this order. Leaves out events of a type that the
 * subscription no longer lists, and deliveries that have changed since they were read. Does nothing if the
 * subscription has ended, because no call would cancel these deliveries any more. Reads how many there were.
 *
 * @param priority `manual` or `scheduled`.
 * @param startsAt SQL expression: when the first slot is.
 */
export function fillSlots(
  subscriptionId: string,
  scheduled: readonly ResentEvent[],
  priority: Priority,
  startsAt: SQL,
): Statements<number> {
  // SQLite goes from slot to slot, and looks up the subscription, the event and the delivery of each by their primary
  // keys. With a constant subscription id, it would scan all deliveries of the subscription.
  const slots = sql`json_each(${JSON.stringify(scheduled.map((one) => ({ ...one, subscriptionId })))}) AS slot`;
  const isOwn = sql`${subscriptions.id} = slot.value->>'subscriptionId' AND ${isActive()}`;
  const isEvent = sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = slot.value->>'eventId'
    AND ${listsType(events.type)}`;
  const isDelivery = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = ${events.id}`;
  const isUnchanged = sql`${deliveries.state} IS slot.value->>'storedState'
    AND ${deliveries.attempts} IS slot.value->>'attempts' AND ${deliveries.dueAt} IS slot.value->>'dueAt'`;
  const waits = sql`slot.value->>'waits'`;
  const slotAt = sql`${startsAt} + slot.key * ${SPACING_MS}`;
  const statements = combine({
    owed: sql`
      UPDATE ${events} SET owed = json_insert(${events.owed}, '$[#]', ${subscriptionId})
      FROM ${slots} JOIN ${subscriptions} ON ${isOwn}
      WHERE ${isEvent} AND NOT EXISTS (SELECT 1 FROM ${deliveries} WHERE ${isDelivery})`,
    // The row of a delivery stores its success. It becomes one of the stored attempts before the row is overwritten.
    stored: insertAttempts(
      {
        at: sql`${deliveries.lastAt}`,
        outcome: sql`${deliveries.lastOutcome}`,
        status: sql`${deliveries.lastStatus}`,
        durationMs: sql`${deliveries.lastDurationMs}`,
        response: sql`NULL`,
      },
      sql`FROM ${slots} JOIN ${subscriptions} ON ${isOwn} JOIN ${events} ON ${isEvent} JOIN ${deliveries} ON ${isDelivery}
        WHERE ${isUnchanged} AND ${deliveries.state} = 'delivered' AND ${deliveries.lastAt} IS NOT NULL`,
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
          dueAt: sql`iif(${waits}, min(${deliveries.dueAt}, ${slotAt}), ${slotAt})`,
          scheduledAt: sql`iif(${waits}, coalesce(${deliveries.scheduledAt}, ${deliveries.dueAt}), NULL)`,
          pendingSinceEpoch: subscriptions.cancelEpoch,
          settledAt: null,
          deliveredEarlier: sql`coalesce(${deliveries.deliveredEarlier} OR ${deliveries.state} = 'delivered', 0)`,
        },
        sql`FROM ${slots} JOIN ${subscriptions} ON ${isOwn} JOIN ${events} ON ${isEvent} LEFT JOIN ${deliveries} ON ${isDelivery}
          WHERE ${isUnchanged}`,
      ).onConflictDoUpdate({
        target: [deliveries.subscriptionId, deliveries.eventId],
        set: mapColumns(deliveries, [...OVERWRITTEN_COLUMNS], excluded),
      }),
    ),
  });
  return readAs(statements, ({ count }) => count);
}

/** Takes the next free slots of the subscription. */
export function takeSlots(
  subscriptionId: string,
  column: SlotsColumn,
  slots: number,
  now: number,
): Part {
  return qb
    .update(subscriptions)
    .set({ [column]: sql`${nextSlotAt(column, now)} + ${slots * SPACING_MS}` })
    .where(and(eq(subscriptions.id, subscriptionId), isActive()));
}
