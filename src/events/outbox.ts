import { type SQL, sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { newEventId } from "../contract/ids.ts";
import { insertFrom } from "../db/builder.ts";
import { combine, insertEach, type Statements } from "../db/client.ts";
import { deliveries, events, PRIORITY, subscriptions } from "../db/schema.ts";
import { isActive, listsType } from "../db/states.ts";
import { serializeBody, type WebhookDelivery } from "./bodies.ts";

/*
 * A transactional outbox: an event and its deliveries are written in the transaction of the record that they are
 * about, so neither exists without the other. The other files of this folder:
 *
 * - bodies.ts makes the body of an event.
 * - samples.ts has sample events.
 */

/** An event to announce. It is stored only if the condition of `announce` holds at the commit. */
export interface Draft {
  id: string;
  /** The id of the record that it is about. */
  subject: string;
  /** The exact body that every endpoint receives; null if it is made from the lead that it is about. */
  body: string | null;
}

/** Makes the draft of an event that announces `data`. */
export function draftEvent<T extends WebhookDelivery>(
  type: T["type"],
  data: T["data"],
  now: number,
  id = newEventId(now),
): Draft {
  return { id, subject: data.id, body: serializeBody<T>(id, type, now, data) };
}

/**
 * Announces the drafts for whose record `condition` holds: inserts each event, with a delivery for every active
 * subscription that lists its type. An event that only disabled subscriptions list is stored as well, because it may be
 * sent to them later. An event that no subscription lists is not stored.
 *
 * These statements come before those that write the record, in the same transaction. The condition therefore sees
 * the state before the write. They are safe to repeat after a lost reply: the record is written, so the condition is false.
 * If the record was removed in between, as a run is with its automation, the event is stored, and is not announced again.
 *
 * @param condition makes the SQL condition on a record from its id, an SQL expression.
 */
export function announce(
  workspaceId: string,
  type: WebhookEvent,
  drafts: Draft[],
  condition: (recordId: SQL) => SQL,
  now: number,
): Statements<unknown> {
  const isAnnounced = condition(sql`draft.value->>'subject'`);
  const isListing = sql`${subscriptions.workspaceId} = ${workspaceId} AND ${listsType(type)}`;
  const isSubscriber = sql`${isListing} AND ${isActive()}`;
  // Only ids, so they fit into one parameter, unlike the bodies.
  const subjects = JSON.stringify(drafts.map(({ id, subject }) => ({ id, subject })));
  // The deliveries come first, because they are inserted only while their event is not stored yet. So a repetition adds none
  // for a subscription that was created meanwhile.
  return combine({
    deliveries: insertFrom(
      deliveries,
      {
        subscriptionId: subscriptions.id,
        eventId: sql`draft.value->>'id'`,
        workspaceId,
        type,
        state: "pending",
        priority: PRIORITY.untried,
        stepsUsed: 0,
        dueAt: now,
        // A cancellation increments the epoch, and ends what was made pending before.
        pendingSinceEpoch: subscriptions.epoch,
      },
      sql`FROM json_each(${subjects}) AS draft JOIN ${subscriptions} ON ${isSubscriber}
          WHERE ${isAnnounced} AND NOT EXISTS (SELECT 1 FROM ${events}
            WHERE ${events.workspaceId} = ${workspaceId} AND ${events.id} = draft.value->>'id')`,
    ),
    events: insertEach(drafts, (chunk) =>
      insertFrom(
        events,
        {
          id: sql`draft.value->>'id'`,
          workspaceId,
          type,
          body: sql`coalesce(draft.value->>'body', '')`,
          leadId: sql`iif(draft.value->>'body' IS NULL, draft.value->>'subject', NULL)`,
          // Deliveries have no index by event alone. They are found by these ids and that of the event.
          owed: sql`(SELECT json_group_array(${subscriptions.id}) FROM ${subscriptions} WHERE ${isSubscriber})`,
          createdAt: now,
        },
        sql`FROM json_each(${chunk}) AS draft
            WHERE ${isAnnounced} AND EXISTS (SELECT 1 FROM ${subscriptions}
              WHERE ${isListing} AND ${subscriptions.deletedAt} IS NULL)
            ON CONFLICT DO NOTHING`,
      ),
    ),
  });
}
