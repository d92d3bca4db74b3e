import { type SQL, sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { UnknownInput } from "../contract/input-error.ts";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import type { Lane } from "../contract/pace.ts";
import type { RedeliveryState } from "../contract/platform.ts";
import { commit, type Database, inOrder, retrying, type Statements, write } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { IS_OWED } from "./deliveries.ts";
import { resize } from "./event-size.ts";
import { unknownWebhook } from "./health.ts";
import { enableSubscription, findSubscription } from "./subscriptions.ts";

const CHUNK_MS = (REDELIVERY_CHUNK * 1000) / REDELIVERIES_PER_SECOND;

/** Events of a subscription by their time; times are Unix milliseconds. */
export interface Range {
  since: number;
  /** Before this; null for no end. */
  until: number | null;
  /** What has become of them; what is pending is on its way already. */
  states: readonly RedeliveryState[];
}

/** Whatever has become of an event. */
export const ALL_STATES: readonly RedeliveryState[] = [
  "delivered",
  "exhausted",
  "cancelled",
  "missed",
];
const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/**
 * Owes a subscription again what it has missed since `since`: every event of a kind that it lists,
 * from its creation on, that was never delivered to it, whether nothing was owed (it was disabled)
 * or what was owed was cancelled or exhausted. Oldest first, spread over time by a bounded rate; ids
 * and bodies are those of the first time. Each step is one transaction, and calling it again adds
 * only what is still missing.
 *
 * @param since Unix milliseconds.
 * @returns how many deliveries are pending by it.
 */
export function redeliver(
  db: Database,
  subscriptionId: string,
  since: number,
  now: number,
): Promise<number> {
  return oweRange(db, subscriptionId, { since, until: null, states: UNDELIVERED }, now);
}

/**
 * Makes a disabled subscription active again; with `since`, it is also owed what it has missed since
 * then, Unix milliseconds.
 *
 * @returns how many deliveries are pending by that.
 * @throws UnknownInput when there is no such subscription.
 */
export async function enableAgain(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
): Promise<number> {
  const enabled = await enableSubscription(db, subscriptionId);
  if (enabled.length === 0) throw unknownWebhook();
  return since === null ? 0 : redeliver(db, subscriptionId, since, now);
}

/**
 * Owes a subscription again events by name, or those of a range, and tries it at once: whoever asks
 * for that has repaired it, and would otherwise wait for hours.
 *
 * @returns how many deliveries are pending by that, and the lane to wake it in; null when nothing is
 *   owed to it: it is disabled, or without access.
 * @throws UnknownInput for a subscription that is not there, or an event that it could not get.
 */
export async function redeliverAgain(
  db: Database,
  subscriptionId: string,
  wanted: readonly string[] | Range,
  now: number,
): Promise<{ count: number; lane: Lane } | null> {
  const { isOwed, lane } = await findSubscription(db, subscriptionId, now);
  if (!isOwed) return null;
  const count =
    "since" in wanted
      ? await redeliverRange(db, subscriptionId, wanted, now)
      : await redeliverEvents(db, subscriptionId, wanted, now);
  await commit(db, endWait(subscriptionId, now));
  return { count, lane };
}

/** The same of a range and of states; nothing is added once the subscription is not active. */
export function redeliverRange(
  db: Database,
  subscriptionId: string,
  range: Range,
  now: number,
): Promise<number> {
  return oweRange(db, subscriptionId, range, now);
}

/**
 * The same of events by name, whatever has become of them; those that wait are due at once.
 *
 * @throws UnknownInput for one that is not of the subscription's workspace or of no kind that it lists.
 */
export async function redeliverEvents(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  now: number,
): Promise<number> {
  const named = JSON.stringify([...new Set(eventIds)]);
  const found = await retrying(() =>
    db.all<{ id: string; owable: 0 | 1; waiting: 0 | 1 }>(sql`
    SELECT e.id AS id, ${isOwable(ALL_STATES, now)} AS owable, ${isWaiting(now)} AS waiting
    FROM ${subscriptions} AS s JOIN json_each(${named}) AS n
      JOIN ${events} AS e ON e.workspace_id = s.workspace_id AND e.id = n.value
      LEFT JOIN ${deliveries} AS d ON d.subscription_id = s.id AND d.event_id = e.id
    WHERE s.id = ${subscriptionId} AND ${IS_LISTED} ORDER BY e.id`),
  );
  const known = new Set(found.map(({ id }) => id));
  const unknown = eventIds.findIndex((id) => !known.has(id));
  if (unknown >= 0)
    throw new UnknownInput(
      `eventIds[${unknown}]`,
      "no such event, or of no kind that the subscription lists",
    );
  const ended = found.flatMap(({ id, owable }) => (owable === 1 ? [id] : []));
  const waiting = found.flatMap(({ id, waiting }) => (waiting === 1 ? [id] : []));
  if (ended.length > 0) await commit(db, oweAgain(subscriptionId, ended, ALL_STATES, now, now));
  if (waiting.length > 0) await commit(db, hasten(subscriptionId, waiting, now));
  return ended.length + waiting.length;
}

async function oweRange(
  db: Database,
  subscriptionId: string,
  range: Range,
  now: number,
): Promise<number> {
  let after = "";
  let count = 0;
  for (let startsAt = now; ; startsAt += CHUNK_MS) {
    const chunk = await nextEvents(db, subscriptionId, range, after, now);
    const last = chunk.at(-1);
    if (!last) return count;
    after = last.id;
    count += chunk.length;
    const ids = chunk.map(({ id }) => id);
    await commit(db, oweAgain(subscriptionId, ids, range.states, startsAt, now));
  }
}

const IS_LISTED = sql`EXISTS (SELECT 1 FROM json_each(s.events) AS kind WHERE kind.value = e.type)`;

/**
 * True in SQL where the delivery `d` of the subscription `s`, or its absence, is in one of the states
 * and was when the call began: what this call itself has caused is not caused twice.
 */
function isOwable(states: readonly RedeliveryState[], now: number): SQL {
  return sql`(coalesce(CASE WHEN d.state = 'pending' AND d.generation < s.generation THEN 'cancelled'
      ELSE d.state END, 'missed') IN (SELECT value FROM json_each(${JSON.stringify(states)}))
    AND (d.state IS NOT 'delivered' OR d.settled_at <= ${now}))`;
}

/** True in SQL where the delivery `d` of the subscription `s` waits, for itself or because `s` fails. */
function isWaiting(now: number): SQL {
  return sql`coalesce(d.state = 'pending' AND d.generation = s.generation
    AND max(d.due_at, s.next_at) > ${now}, 0)`;
}

/** Makes due at once what of the events waits. */
function hasten(subscriptionId: string, eventIds: string[], now: number): Statements<unknown> {
  return write(sql`UPDATE ${deliveries} AS d SET due_at = min(d.due_at, ${now})
    FROM json_each(${pairsOf(subscriptionId, eventIds)}) AS n
      JOIN ${subscriptions} AS s ON s.id = n.value->>0
    WHERE d.subscription_id = s.id AND d.event_id = n.value->>1 AND ${isWaiting(now)}`);
}

/**
 * The subscription beside each of the events, as JSON. Where it is looked up by that, SQLite goes from
 * event to event; where it is known by itself, it goes through all that the subscription has.
 */
function pairsOf(subscriptionId: string, eventIds: string[]): string {
  return JSON.stringify(eventIds.map((eventId) => [subscriptionId, eventId]));
}

/** Ends the wait of a closed subscription: its next probe is due. */
function endWait(subscriptionId: string, now: number): Statements<unknown> {
  return write(sql`UPDATE ${subscriptions} SET next_at = ${now}
    WHERE id = ${subscriptionId} AND next_at > ${now}`);
}

/** The next events of the range that the subscription lists, oldest first. */
function nextEvents(
  db: Database,
  subscriptionId: string,
  { since, until, states }: Range,
  after: string,
  now: number,
) {
  const isBefore = until === null ? sql`true` : sql`e.created_at < ${until}`;
  return retrying(() =>
    db.all<{ id: string }>(sql`
    SELECT e.id AS id
    FROM ${subscriptions} AS s JOIN ${events} AS e ON e.workspace_id = s.workspace_id
      LEFT JOIN ${deliveries} AS d ON d.subscription_id = s.id AND d.event_id = e.id
    WHERE s.id = ${subscriptionId} AND e.id > ${after} AND (e.id >= ${eventIdAt(since)} OR e.expires_at IS NOT NULL)
      AND e.created_at >= max(s.created_at, ${since}) AND ${isBefore}
      AND ${IS_OWED} AND ${IS_LISTED} AND ${isOwable(states, now)}
    ORDER BY e.id LIMIT ${REDELIVERY_CHUNK}`),
  );
}

/**
 * Makes pending what is owed for the events, in the order of delivery; nothing if the subscription
 * has ended meanwhile: that would be cancelled by nobody.
 */
function oweAgain(
  subscriptionId: string,
  eventIds: string[],
  states: readonly RedeliveryState[],
  startsAt: number,
  now: number,
): Statements<unknown> {
  const ids = pairsOf(subscriptionId, eventIds);
  const dueAt = sql`${startsAt} + missed.key * ${1000 / REDELIVERIES_PER_SECOND}`;
  const isNew = sql`NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
    WHERE d.subscription_id = ${subscriptionId} AND d.event_id = missed.value->>1)`;
  const subscription = sql`${subscriptions} AS s ON s.id = missed.value->>0 AND ${IS_OWED}`;
  const owedAgain = sql`FROM json_each(${ids}) AS missed JOIN ${subscription}
    JOIN ${events} AS e ON e.workspace_id = s.workspace_id AND e.id = missed.value->>1 WHERE true`;
  return inOrder([
    write(sql`UPDATE ${deliveries} AS d SET state = 'pending', attempts = 0, due_at = ${dueAt},
        settled_at = NULL, generation = s.generation
      FROM json_each(${ids}) AS missed JOIN ${subscription}
      WHERE d.event_id = missed.value->>1 AND d.subscription_id = s.id
        AND ${isOwable(states, now)}`),
    resize(-1, owedAgain),
    write(sql`UPDATE ${events} SET owed = json_insert(owed, '$[#]', ${subscriptionId})
      FROM json_each(${ids}) AS missed JOIN ${subscription}
      WHERE ${events.id} = missed.value->>1 AND ${events.workspaceId} = s.workspace_id AND ${isNew}`),
    resize(1, owedAgain),
    write(sql`INSERT INTO ${deliveries} (subscription_id, event_id, workspace_id, state, due_at, generation)
      SELECT s.id, e.id, e.workspace_id, 'pending', ${dueAt}, s.generation
      FROM json_each(${ids}) AS missed JOIN ${subscription}
        JOIN ${events} AS e ON e.workspace_id = s.workspace_id AND e.id = missed.value->>1
      WHERE ${isNew}`),
  ]);
}
