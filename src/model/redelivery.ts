import { sql } from "drizzle-orm";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import { commit, type Database, inOrder, retrying, type Statements, write } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";

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
  let after = { createdAt: since, position: 0 };
  for (let startsAt = now; ; startsAt += CHUNK_MS) {
    const chunk = await missedEvents(db, subscriptionId, after);
    const last = chunk.at(-1);
    if (!last) return;
    after = last;
    const ids = JSON.stringify(chunk.map(({ id }) => id));
    await commit(db, oweAgain(subscriptionId, ids, startsAt));
  }
}

/** The next events that the subscription lists and that were not delivered to it, oldest first. */
function missedEvents(
  db: Database,
  subscriptionId: string,
  after: { createdAt: number; position: number },
) {
  return retrying(() =>
    db.all<{ id: string; createdAt: number; position: number }>(sql`
    SELECT e.id AS id, e.created_at AS createdAt, e.rowid AS position
    FROM ${subscriptions} AS s JOIN ${events} AS e
      ON e.workspace_id = s.workspace_id AND (e.created_at, e.rowid) > (${after.createdAt}, ${after.position})
    WHERE s.id = ${subscriptionId} AND e.created_at >= s.created_at
      AND EXISTS (SELECT 1 FROM json_each(s.events) AS kind WHERE kind.value = e.type)
      AND NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
        WHERE d.event_id = e.id AND d.subscription_id = s.id AND d.state IN ('pending', 'delivered'))
    ORDER BY e.created_at, e.rowid LIMIT ${REDELIVERY_CHUNK}`),
  );
}

/** Makes pending what is owed for the events in `ids`, a JSON array in the order of delivery. */
function oweAgain(subscriptionId: string, ids: string, startsAt: number): Statements<unknown> {
  const dueAt = sql`${startsAt} + missed.key * ${1000 / REDELIVERIES_PER_SECOND}`;
  const isNew = sql`NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
    WHERE d.event_id = missed.value AND d.subscription_id = ${subscriptionId})`;
  return inOrder([
    write(sql`UPDATE ${deliveries} SET state = 'pending', attempts = 0, due_at = ${dueAt}, settled_at = NULL
      FROM json_each(${ids}) AS missed
      WHERE event_id = missed.value AND subscription_id = ${subscriptionId}
        AND state IN ('cancelled', 'exhausted')`),
    write(sql`UPDATE ${events} SET owed = owed + 1 FROM json_each(${ids}) AS missed
      WHERE ${events.id} = missed.value AND ${isNew}`),
    write(sql`INSERT INTO ${deliveries} (event_id, subscription_id, workspace_id, state, due_at)
      SELECT e.id, ${subscriptionId}, e.workspace_id, 'pending', ${dueAt}
      FROM json_each(${ids}) AS missed JOIN ${events} AS e ON e.id = missed.value
      WHERE ${isNew}`),
  ]);
}
