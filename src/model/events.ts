import { type SQL, sql } from "drizzle-orm";
import { newEventId } from "../contract/ids.ts";
import type { WebhookDelivery, WebhookEvent } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
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
export const isNewLead = sql`NOT EXISTS (SELECT 1 FROM ${leads} WHERE ${leads.id} = draft.value->>'subject')`;

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
  const listing = sql`s.workspace_id = ${workspaceId} AND s.deleted_at IS NULL
    AND EXISTS (SELECT 1 FROM json_each(s.events) AS kind WHERE kind.value = ${type})`;
  const owed = sql`${listing} AND s.disabled_at IS NULL
    AND EXISTS (SELECT 1 FROM workspaces AS w WHERE w.id = s.workspace_id AND w.access_granted)`;
  const subjects = JSON.stringify(drafts.map(({ id, subject }) => ({ id, subject })));
  return inOrder([
    // First: what is still to be announced is known by its event not being there.
    write(sql`
      INSERT INTO ${deliveries} (subscription_id, event_id, workspace_id, state, due_at, generation)
      SELECT s.id, draft.value->>'id', ${workspaceId}, 'pending', ${now}, s.generation
      FROM json_each(${subjects}) AS draft JOIN ${subscriptions} AS s ON ${owed}
      WHERE ${condition} AND NOT EXISTS (SELECT 1 FROM ${events} AS e
        WHERE e.workspace_id = ${workspaceId} AND e.id = draft.value->>'id')`),
    ...jsonParameters(drafts).map((chunk) =>
      write(sql`
        INSERT INTO ${events} (id, workspace_id, type, body, owed, created_at)
        SELECT draft.value->>'id', ${workspaceId}, ${type}, draft.value->>'body',
          (SELECT json_group_array(s.id) FROM ${subscriptions} AS s WHERE ${owed}), ${now}
        FROM json_each(${chunk}) AS draft
        WHERE ${condition} AND EXISTS (SELECT 1 FROM ${subscriptions} AS s WHERE ${listing})
        ON CONFLICT (workspace_id, id) DO NOTHING`),
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
