import { sql } from "drizzle-orm";
import type { DeliveryState } from "../contract/enumerations.ts";
import { excluded, insertFrom, mapColumns } from "../db/builder.ts";
import { combine, counted, readAs, type Statements } from "../db/client.ts";
import { attempts, deliveries, events, PRIORITY, subscriptions } from "../db/schema.ts";
import { deliveryState, isActive, listsType } from "../db/states.ts";
import { insertAttempts } from "../delivery/attempts.ts";

/** An event to send again, with its delivery as it was read; the fields are null if it had no delivery. */
export interface ResentEvent {
  eventId: string;
  priority: number | null;
  attemptsMade: number | null;
  dueAt: number | null;
  /** The state of the delivery, which may be cancelled although its row still says `pending`. */
  state: DeliveryState | null;
}

const OVERWRITTEN_COLUMNS = [
  "state",
  "priority",
  "stepsUsed",
  "firstAt",
  "dueAt",
  "pendingSinceEpoch",
  "settledAt",
  "deliveredEarlier",
  "replayId",
  "stateBefore",
] as const;

/**
 * Makes the deliveries of the events pending and due at once, with a new retry schedule. Leaves out events of a type that
 * the subscription no longer lists, and deliveries that have changed since they were read. Does nothing if the
 * subscription has ended, because no call would cancel these deliveries any more. Reads how many there were.
 *
 * @param replayId the replay that sends them again; null for a resend.
 * @param now Unix milliseconds.
 * @param isAllowed SQL condition, without which it does nothing either.
 */
export function makePending(
  subscriptionId: string,
  wanted: readonly ResentEvent[],
  replayId: string | null,
  now: number,
  isAllowed = sql`TRUE`,
): Statements<number> {
  const isReplay = replayId !== null;
  // SQLite goes from event to event, and looks up the subscription, the event and the delivery of each by their primary
  // keys. With a constant subscription id, it would scan all deliveries of the subscription.
  const rows = sql`json_each(${JSON.stringify(wanted.map((one) => ({ ...one, subscriptionId })))}) AS wanted`;
  const isOwn = sql`${subscriptions.id} = wanted.value->>'subscriptionId' AND ${isActive()} AND ${isAllowed}`;
  const isEvent = sql`${events.workspaceId} = ${subscriptions.workspaceId} AND ${events.id} = wanted.value->>'eventId'
    AND ${listsType(events.type)}`;
  const isDelivery = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = ${events.id}`;
  // A dispatch may have updated the row of a cancelled delivery since it was read, which does not change its state.
  const isUnchanged = sql`(${deliveryState()}, ${deliveries.priority}, ${deliveries.attemptsMade}, ${deliveries.dueAt})
    IS (wanted.value->>'state', wanted.value->>'priority', wanted.value->>'attemptsMade', wanted.value->>'dueAt')`;
  const statements = combine({
    owed: sql`
      UPDATE ${events} SET owed = json_insert(${events.owed}, '$[#]', ${subscriptionId})
      FROM ${rows} JOIN ${subscriptions} ON ${isOwn}
      WHERE ${isEvent} AND NOT EXISTS (SELECT 1 FROM ${deliveries} WHERE ${isDelivery})`,
    // The row of a delivery stores its success. It becomes one of the stored attempts before the row is overwritten, unless
    // a replay that was stopped has stored it.
    stored: insertAttempts(
      {
        at: sql`${deliveries.lastAt}`,
        outcome: sql`${deliveries.lastOutcome}`,
        status: sql`${deliveries.lastStatus}`,
        durationMs: sql`${deliveries.lastDurationMs}`,
        response: sql`NULL`,
      },
      sql`FROM ${rows} JOIN ${subscriptions} ON ${isOwn} JOIN ${events} ON ${isEvent} JOIN ${deliveries} ON ${isDelivery}
        WHERE ${isUnchanged} AND ${deliveries.state} = 'delivered' AND ${deliveries.lastAt} IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM ${attempts} WHERE ${attempts.subscriptionId} = ${deliveries.subscriptionId}
            AND ${attempts.eventId} = ${deliveries.eventId} AND ${attempts.at} = ${deliveries.lastAt})`,
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
          priority: isReplay ? PRIORITY.replay : PRIORITY.resend,
          stepsUsed: 0,
          firstAt: null,
          dueAt: now,
          pendingSinceEpoch: subscriptions.epoch,
          settledAt: null,
          replayId,
          stateBefore: isReplay ? sql`wanted.value->>'state'` : null,
          deliveredEarlier: sql`coalesce(${deliveries.deliveredEarlier} OR ${deliveries.state} = 'delivered', 0)`,
        },
        sql`FROM ${rows} JOIN ${subscriptions} ON ${isOwn} JOIN ${events} ON ${isEvent} LEFT JOIN ${deliveries} ON ${isDelivery}
          WHERE ${isUnchanged}`,
      ).onConflictDoUpdate({
        target: [deliveries.subscriptionId, deliveries.eventId],
        set: mapColumns(deliveries, [...OVERWRITTEN_COLUMNS], excluded),
      }),
    ),
  });
  return readAs(statements, ({ count }) => count);
}
