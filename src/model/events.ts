import { type SQL, sql } from "drizzle-orm";
import { newEventId } from "../contract/ids.ts";
import type { WebhookDelivery, WebhookEvent } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { insertFrom } from "../db/builder.ts";
import {
  commit,
  type Database,
  inOrder,
  jsonParameters,
  type Statements,
  write,
} from "../db/client.ts";
import { commitOnce } from "../db/once.ts";
import { deliveries, events, leads, subscriptions } from "../db/schema.ts";
import { dueInWorkspace, type Wake } from "./due.ts";
import { IS_OWED } from "./holds.ts";

/** An event that is announced if, when it is committed, its subject makes it true. */
export interface Draft {
  id: string;
  /** The identifier of the record that it is about. */
  subject: string;
  /** The exact text that every subscriber gets. */
  body: string;
}

/** Drafts the event that tells subscribers of `data`. */
export function draftEvent<T extends WebhookDelivery>(
  type: T["type"],
  data: T["data"],
  now: number,
): Draft {
  const id = newEventId(now);
  const body = JSON.stringify({ id, type, created_at: isoTime(now), data });
  return { id, subject: data.id, body };
}

/** Condition on a draft, true in SQL before the record itself is written. */
export const IS_NEW_LEAD = sql`NOT EXISTS (SELECT 1 FROM ${leads} WHERE ${leads.id} = draft.value->>'subject')`;

/**
 * Announces those of `drafts` whose `condition` holds: each event, and a delivery to every
 * subscription that is active and lists its kind. An event that no subscription lists is not written;
 * one that is disabled may be sent it later. These come before the statements that write the record,
 * in the same transaction: the condition looks at what was there before, so that a second try finds
 * its own record and announces nothing.
 */
export function announce(
  workspaceId: string,
  type: WebhookEvent,
  drafts: Draft[],
  condition: SQL,
  now: number,
): Statements<unknown> {
  const isListing = sql`${subscriptions.workspaceId} = ${workspaceId} AND ${subscriptions.deletedAt} IS NULL
    AND EXISTS (SELECT 1 FROM json_each(${subscriptions.events}) AS kind WHERE kind.value = ${type})`;
  const isOwed = sql`${isListing} AND ${IS_OWED}`;
  const subjects = JSON.stringify(drafts.map(({ id, subject }) => ({ id, subject })));
  return inOrder([
    // First: what is still to be announced is known by its event not being there.
    write(
      insertFrom(
        deliveries,
        {
          subscriptionId: subscriptions.id,
          eventId: sql`draft.value->>'id'`,
          workspaceId,
          state: "pending",
          dueAt: now,
          generation: subscriptions.generation,
        },
        sql`FROM json_each(${subjects}) AS draft JOIN ${subscriptions} ON ${isOwed}
          WHERE ${condition} AND NOT EXISTS (SELECT 1 FROM ${events}
            WHERE ${events.workspaceId} = ${workspaceId} AND ${events.id} = draft.value->>'id')`,
      ),
    ),
    ...jsonParameters(drafts).map((chunk) =>
      insertFrom(
        events,
        {
          id: sql`draft.value->>'id'`,
          workspaceId,
          type,
          body: sql`draft.value->>'body'`,
          owed: sql`(SELECT json_group_array(${subscriptions.id}) FROM ${subscriptions} WHERE ${isOwed})`,
          createdAt: now,
        },
        sql`FROM json_each(${chunk}) AS draft
            WHERE ${condition} AND EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${isListing})
            ON CONFLICT DO NOTHING`,
      ),
    ),
  ]);
}

/**
 * Commits records together with the events that announce them.
 *
 * @param workspaceIds whose records they are.
 * @param guard as `commitOnce` takes it; left out for statements that change nothing when they are
 *   applied a second time, whatever others wrote in between.
 * @returns what is read of `statements`, or `null` when `commitOnce` has found them committed; and the
 *   subscriptions to be woken.
 */
export async function commitAnnounced<R>(
  db: Database,
  statements: Statements<R>,
  workspaceIds: string[],
  now: number,
  guard?: SQL,
): Promise<{ result: R | null; wakes: Wake[] }> {
  const due = inOrder(workspaceIds.map((id) => dueInWorkspace(id, now)));
  const all = inOrder([statements, due]);
  const committed = guard ? await commitOnce(db, all, now, guard) : await commit(db, all);
  const [result, wakes] = committed ?? [null, await commit(db, due)];
  return { result, wakes: wakes.flat() };
}
