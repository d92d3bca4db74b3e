import { type SQL, sql } from "drizzle-orm";
import { randomId } from "../contract/ids.ts";
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
import { dueInWorkspace, type Wake } from "./deliveries.ts";

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
  const id = randomId("event");
  const body = JSON.stringify({ id, type, created_at: isoTime(now), data });
  return { id, subject: data.id, body };
}

/** Condition on a draft, true in SQL before the record itself is written. */
export const isNewLead = sql`NOT EXISTS (SELECT 1 FROM ${leads} WHERE ${leads.id} = draft.value->>'subject')`;

/**
 * Statements that announce those of `drafts` whose `condition` holds: each event, and a delivery to
 * every subscription that is active and lists its kind. They come before the statements that write
 * the record, in the same transaction: the condition looks at what was there before. Applied again,
 * they announce nothing: an event that is there is owed to those who were subscribed when it came.
 */
export function announce(
  workspaceId: string,
  type: WebhookEvent,
  drafts: Draft[],
  condition: SQL,
  now: number,
): Statements<unknown> {
  if (drafts.length === 0) return inOrder([]);
  const owed = sql`FROM ${subscriptions} AS s JOIN workspaces AS w ON w.id = s.workspace_id
    WHERE s.workspace_id = ${workspaceId} AND s.disabled_at IS NULL AND w.access_granted
      AND EXISTS (SELECT 1 FROM json_each(s.events) AS kind WHERE kind.value = ${type})`;
  const subjects = JSON.stringify(drafts.map(({ id, subject }) => ({ id, subject })));
  return inOrder([
    write(sql`
      INSERT INTO ${deliveries} (event_id, subscription_id, workspace_id, state, due_at)
      SELECT draft.value->>'id', s.id, ${workspaceId}, 'pending', ${now}
      FROM json_each(${subjects}) AS draft JOIN (SELECT s.id ${owed}) AS s
      WHERE ${condition}
        AND NOT EXISTS (SELECT 1 FROM ${events} AS known WHERE known.id = draft.value->>'id')`),
    ...jsonParameters(drafts).map((chunk) =>
      write(sql`
        INSERT INTO ${events} (id, workspace_id, type, body, owed, created_at)
        SELECT draft.value->>'id', ${workspaceId}, ${type}, draft.value->>'body', (SELECT count(*) ${owed}), ${now}
        FROM json_each(${chunk}) AS draft
        WHERE ${condition}
        ON CONFLICT (id) DO NOTHING`),
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
