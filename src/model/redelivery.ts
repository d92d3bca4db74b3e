import { sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import { commit, type Database, inOrder, retrying, type Statements, write } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { IS_OWED } from "./deliveries.ts";
import { resize } from "./event-size.ts";

const CHUNK_MS = (REDELIVERY_CHUNK * 1000) / REDELIVERIES_PER_SECOND;

/**
 * Owes a subscription again what it has missed since `since`: every event of a kind that it lists,
 * from its creation on, that was never delivered to it, whether nothing was owed (it was disabled)
 * or what was owed was cancelled or exhausted. Oldest first, spread over time by a bounded rate; ids
 * and bodies are those of the first time. Each step is one transaction, and calling it again adds
 * only what is still missing.
 *
 * @param since Unix milliseconds.
 */
export async function redeliver(
  db: Database,
  subscriptionId: string,
  since: number,
  now: number,
): Promise<void> {
  let after = "";
  for (let startsAt = now; ; startsAt += CHUNK_MS) {
    const chunk = await missedEvents(db, subscriptionId, since, after);
    const last = chunk.at(-1);
    if (!last) return;
    after = last.id;
    const ids = JSON.stringify(chunk.map(({ id }) => id));
    await commit(db, oweAgain(subscriptionId, ids, startsAt));
  }
}

/** The next events that the subscription lists and that were not delivered to it, oldest first. */
function missedEvents(db: Database, subscriptionId: string, since: number, after: string) {
  return retrying(() =>
    db.all<{ id: string }>(sql`
    SELECT e.id AS id
    FROM ${subscriptions} AS s JOIN ${events} AS e ON e.workspace_id = s.workspace_id
    WHERE s.id = ${subscriptionId} AND e.id > ${after} AND (e.id >= ${eventIdAt(since)} OR e.expires_at IS NOT NULL)
      AND e.created_at >= max(s.created_at, ${since})
      AND EXISTS (SELECT 1 FROM json_each(s.events) AS kind WHERE kind.value = e.type)
      AND NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
        WHERE d.subscription_id = s.id AND d.event_id = e.id
          AND (d.state = 'delivered' OR d.state = 'pending' AND d.generation = s.generation))
    ORDER BY e.id LIMIT ${REDELIVERY_CHUNK}`),
  );
}

/**
 * Makes pending what is owed for the events in `ids`, a JSON array in the order of delivery; nothing
 * if the subscription has ended meanwhile: that would be cancelled by nobody.
 */
function oweAgain(subscriptionId: string, ids: string, startsAt: number): Statements<unknown> {
  const dueAt = sql`${startsAt} + missed.key * ${1000 / REDELIVERIES_PER_SECOND}`;
  const generation = sql`(SELECT s.generation FROM ${subscriptions} AS s WHERE s.id = ${subscriptionId})`;
  const workspace = sql`(SELECT s.workspace_id FROM ${subscriptions} AS s WHERE s.id = ${subscriptionId})`;
  const isOwed = sql`EXISTS (SELECT 1 FROM ${subscriptions} AS s WHERE s.id = ${subscriptionId} AND ${IS_OWED})`;
  const isNew = sql`${isOwed} AND NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
    WHERE d.subscription_id = ${subscriptionId} AND d.event_id = missed.value)`;
  const owedAgain = sql`FROM json_each(${ids}) AS missed JOIN ${events} AS e
    ON e.workspace_id = ${workspace} AND e.id = missed.value WHERE true`;
  return inOrder([
    write(sql`UPDATE ${deliveries} SET state = 'pending', attempts = 0, due_at = ${dueAt},
        settled_at = NULL, generation = ${generation}
      FROM json_each(${ids}) AS missed
      WHERE event_id = missed.value AND subscription_id = ${subscriptionId} AND ${isOwed}
        AND (state IN ('cancelled', 'exhausted') OR state = 'pending' AND generation < ${generation})`),
    resize(-1, owedAgain),
    write(sql`UPDATE ${events} SET owed = json_insert(owed, '$[#]', ${subscriptionId})
      FROM json_each(${ids}) AS missed
      WHERE ${events.id} = missed.value AND ${events.workspaceId} = ${workspace} AND ${isNew}`),
    resize(1, owedAgain),
    write(sql`INSERT INTO ${deliveries} (subscription_id, event_id, workspace_id, state, due_at, generation)
      SELECT ${subscriptionId}, e.id, e.workspace_id, 'pending', ${dueAt}, ${generation}
      FROM json_each(${ids}) AS missed JOIN ${events} AS e
        ON e.workspace_id = ${workspace} AND e.id = missed.value
      WHERE ${isNew}`),
  ]);
}
