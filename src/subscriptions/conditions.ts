import { and, type Column, eq, isNull, type SQL, sql } from "drizzle-orm";
import type { DeliveryState } from "../contract/enumerations.ts";
import { type InputError, unknownInput } from "../contract/input-error.ts";
import { deliveries, events, subscriptions, workspaces } from "../db/schema.ts";

/* The rules that connect subscriptions, events and deliveries, as SQL conditions. */

/** SQL condition: the subscription has this id and is not deleted. */
export function isSubscription(id: string): SQL | undefined {
  return and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt));
}

export function unknownWebhook(): InputError {
  return unknownInput("webhookId", "no such subscription");
}

/** SQL condition: the subscription is active, so events are sent to it. */
export const IS_ACTIVE = sql`(${subscriptions.disabledAt} IS NULL AND ${subscriptions.deletedAt} IS NULL
  AND EXISTS (SELECT 1 FROM ${workspaces} WHERE ${workspaces.id} = ${subscriptions.workspaceId} AND ${workspaces.accessGranted}))`;

/** SQL condition: the subscription lists this event type. */
export const lists = (type: Column | string): SQL =>
  sql`EXISTS (SELECT 1 FROM json_each(${subscriptions.events}) AS listed WHERE listed.value = ${type})`;

/** SQL condition: the delivery belongs to the subscription, and its row says `pending`. */
export const IS_PENDING = sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'`;

/** A table expression: the pending deliveries. Without the hint, SQLite reads all of a subscription's. */
export const PENDING = sql`${deliveries} INDEXED BY deliveries_due_of_subscription`;

/**
 * SQL condition: the delivery was cancelled with its subscription or event type, although its row still says
 * `pending`. A dispatch updates the row later (delivery/cancellation.ts).
 */
export const IS_CANCELLED_LAZILY = sql`(${deliveries.state} = 'pending'
  AND ${deliveries.cancelEpoch} < coalesce(${subscriptions.cancelledBefore} ->> ${deliveries.type}, 0))`;

/** SQL expression: the state of the subscription's delivery. */
export const STATE = sql<DeliveryState>`iif(${IS_CANCELLED_LAZILY}, 'cancelled', ${deliveries.state})`;

/** SQL condition: the event is that of the delivery. */
export const IS_ITS_EVENT = sql`${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}`;
