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
import { deliveries, events, leads, runs, subscriptions } from "../db/schema.ts";
import { dueInWorkspace, type Wake } from "./deliveries.ts";
import { isRemoved } from "./removals.ts";

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

/** Conditions on a draft, true in SQL before the record itself is written. */
export const isNewLead = sql`NOT EXISTS (SELECT 1 FROM ${leads} WHERE ${leads.id} = draft.value->>'subject')`;
export const isNewRun = sql`NOT EXISTS (SELECT 1 FROM ${runs} AS known
  WHERE known.id = draft.value->>'subject' AND NOT ${isRemoved("known")})`;

/**
 * Statements that announce those of `drafts` whose `condition` holds: each event, and a delivery to
 * every subscription that is active and lists its kind. They come before the statements that write
 * the record, in the same transaction: the condition looks at what was there before.
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
  const ids = JSON.stringify(drafts.map(({ id }) => id));
  return inOrder([
    ...jsonParameters(drafts).map((chunk) =>
      write(sql`
        INSERT INTO ${events} (id, workspace_id, type, body, owed, created_at)
        SELECT draft.value->>'id', ${workspaceId}, ${type}, draft.value->>'body', (SELECT count(*) ${owed}), ${now}
        FROM json_each(${chunk}) AS draft
        WHERE ${condition}
        ON CONFLICT (id) DO NOTHING`),
    ),
    write(sql`
      INSERT INTO ${deliveries} (event_id, subscription_id, workspace_id, state, due_at)
      SELECT e.id, s.id, ${workspaceId}, 'pending', ${now}
      FROM (SELECT s.id ${owed}) AS s
        JOIN json_each(${ids}) AS draft
        JOIN ${events} AS e ON e.id = draft.value
      WHERE true
      ON CONFLICT (event_id, subscription_id) DO NOTHING`),
  ]);
}

/**
 * Commits records together with the events that announce them, once.
 *
 * @param workspaceIds whose records they are.
 * @param guard as `commitOnce` takes it.
 * @returns what is read of `statements`, or `null` when they were committed and the reply was lost;
 *   and the subscriptions to be woken.
 */
export async function commitAnnounced<R>(
  db: Database,
  statements: Statements<R>,
  workspaceIds: string[],
  now: number,
  guard?: SQL,
): Promise<{ result: R | null; wakes: Wake[] }> {
  const due = inOrder(workspaceIds.map((id) => dueInWorkspace(id, now)));
  const committed = await commitOnce(db, inOrder([statements, due]), now, guard);
  const [result, wakes] = committed ?? [null, await commit(db, due)];
  return { result, wakes: wakes.flat() };
}
