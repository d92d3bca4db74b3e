import { sql } from "drizzle-orm";
import type { DeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { fromJson, mapColumns, qb } from "../db/builder.ts";
import { jsonParameters, prepared, type Statements, transaction } from "../db/client.ts";
import { attempts, deliveries, type LastAttempt, subscriptions } from "../db/schema.ts";
import { addCounts, countAttempts } from "../history/counts.ts";
import { insertAttempts } from "./attempts.ts";
import { CANCEL_PENDING } from "./endings.ts";
import { HOLDER } from "./lease.ts";
import { IS_QUEUED, QUEUES } from "./order.ts";
import { FRESH, type Pace } from "./policy.ts";

/* What an exchange records. All of it only affects what the dispatch still leases. */

/** How an attempt ended. */
export interface Settlement {
  subscriptionId: string;
  eventId: string;
  type: WebhookEvent;
  /** Number of attempts before this one, and with it, unless it does not count. */
  attempts: number;
  attemptsNow: number;
  state: DeliveryState;
  /** When it is due again, if it is still pending; else when it ended. */
  dueAt: number;
  outcome: string;
  status: number | null;
  /** When the attempt started: Unix milliseconds. */
  startedAt: number;
  durationMs: number;
  /** What is kept of its answer, encrypted. */
  response: string | null;
}

/** What a dispatch changes about a subscription that it leases. */
export interface Change extends Pace {
  subscriptionId: string;
  /** Its cancellations when the pace changed; a pace from before the last one is not stored. */
  cancellations: number;
  /** Where it was posted to when the pace changed: what another server did is not stored. */
  url: string;
  /** Whether the pace has changed. */
  paceChanged: boolean;
  /** Whether it has failed for too long. */
  disable: boolean;
  /** If it has recovered from an outage: since when it had failed. */
  freedSince: number | null;
  /** The last attempt, successful or not; null if there was none. */
  last: LastAttempt | null;
  /** Whether to release it; what is claimed in the same transaction leases it again. */
  release: boolean;
}

/** Maximum deliveries of an outage that are retried at once; an endpoint that fails is not sent as many. */
const FREED_MAX = 1_000;

const NOW = sql`${sql.placeholder("now")}`;
const CHANGES = sql`json_each(${sql.placeholder("changes")}) AS c`;
const IS_LEASED = sql`${subscriptions.id} = c.value->>'subscriptionId' AND ${subscriptions.leasedBy} = ${HOLDER}`;
// Disabling cancels. So if the reply is lost, and the subscription is enabled again
// before the second try, that try does not disable it again.
const IS_NEW_PACE = sql`(c.value->>'paceChanged' AND ${subscriptions.cancellations} = c.value->>'cancellations'
  AND ${subscriptions.url} = c.value->>'url')`;
const IS_NEW_PACE_OF_ACTIVE = sql`${IS_LEASED} AND ${IS_NEW_PACE} AND ${subscriptions.disabledAt} IS NULL AND ${subscriptions.deletedAt} IS NULL`;

const disable = prepared(
  qb
    .update(subscriptions)
    .set({ disabledAt: NOW, disabledByFailures: true, ...CANCEL_PENDING })
    .from(CHANGES)
    .where(sql`${IS_NEW_PACE_OF_ACTIVE} AND c.value->>'disable'`),
);

/** The fields of a pace. */
export const PACE = Object.keys(FRESH) as (keyof Pace)[];

const changed = fromJson("c");

const applyChanges = prepared(
  qb
    .update(subscriptions)
    .set({
      ...mapColumns(
        subscriptions,
        PACE,
        (column, name) => sql`iif(${IS_NEW_PACE}, ${changed(column, name)}, ${column})`,
      ),
      lastAttempt: sql`coalesce(c.value->>'last', ${subscriptions.lastAttempt})`,
      leasedUntil: sql`iif(c.value->>'release', 0, ${subscriptions.leasedUntil})`,
    })
    .from(CHANGES)
    .where(sql`${IS_LEASED} AND (c.value->>'paceChanged' OR ${subscriptions.leasedUntil} <> 0)`),
);

// What failed during an outage is due when it ends. The others keep to their own turns.
const free = prepared(
  qb
    .update(deliveries)
    .set({ dueAt: NOW })
    .where(
      sql`(${deliveries.subscriptionId}, ${deliveries.eventId}) IN (
        SELECT ${deliveries.subscriptionId}, ${deliveries.eventId}
        FROM ${CHANGES} CROSS JOIN ${subscriptions} ON ${IS_LEASED} AND c.value->>'freedSince' IS NOT NULL
          CROSS JOIN ${QUEUES} CROSS JOIN ${deliveries} ON ${IS_QUEUED} AND ${deliveries.dueAt} > ${NOW}
            AND ${deliveries.lastAt} + ${deliveries.lastDurationMs} >= c.value->>'freedSince'
        LIMIT ${FREED_MAX})`,
    ),
);

/**
 * Updates subscriptions and releases them, and disables those that have failed for too long.
 *
 * Comes before the claim of the same transaction, which so goes by the new pace, and leases again what has
 * more due. One row is written for each subscription, whatever changes.
 */
export function updateSubscriptions(
  holder: string,
  changes: Change[],
  now: number,
): Statements<unknown> {
  const values = { holder, changes: JSON.stringify(changes), now };
  return transaction({
    changed: applyChanges(values),
    disabled: changes.some((change) => change.disable) ? disable(values) : undefined,
    freed: changes.some(({ freedSince }) => freedSince !== null) ? free(values) : undefined,
  });
}

const OUTCOMES = sql`json_each(${sql.placeholder("outcomes")}) AS o`;
const IS_OPEN = sql`${deliveries.subscriptionId} = o.value->>'subscriptionId' AND ${deliveries.eventId} = o.value->>'eventId'
    AND ${deliveries.state} = 'pending' AND ${deliveries.attempts} = o.value->>'attempts'
    AND (o.value->>'attemptsNow' > o.value->>'attempts' OR ${deliveries.lastAt} IS NOT o.value->>'startedAt')
    AND EXISTS (SELECT 1 FROM ${subscriptions}
      WHERE ${subscriptions.id} = ${deliveries.subscriptionId} AND ${subscriptions.leasedBy} = ${HOLDER})`;

const outcome = fromJson("o");
const IS_DELIVERED = sql`o.value->>'state' = 'delivered'`;

const insertFailures = prepared(
  insertAttempts(
    {
      at: sql`o.value->>'startedAt'`,
      ...mapColumns(attempts, ["outcome", "status", "durationMs", "response"], outcome),
    },
    sql`FROM ${OUTCOMES} JOIN ${deliveries} ON ${IS_OPEN} WHERE NOT ${IS_DELIVERED}`,
  ),
);

const updateDeliveries = prepared(
  qb
    .update(deliveries)
    .set({
      ...mapColumns(deliveries, ["state", "dueAt"], outcome),
      settledAt: sql`iif(o.value->>'state' = 'pending', NULL, o.value->>'dueAt')`,
      attempts: sql`o.value->>'attemptsNow'`,
      priority: 2,
      turnAt: null,
      lastOutcome: sql`o.value->>'outcome'`,
      lastStatus: sql`o.value->>'status'`,
      lastAt: sql`o.value->>'startedAt'`,
      lastDurationMs: sql`o.value->>'durationMs'`,
    })
    .from(OUTCOMES)
    .where(IS_OPEN),
);

// A second try finds none of them open, and so counts nothing twice.
const countOutcomes = addCounts(sql`EXISTS (
  SELECT 1 FROM ${OUTCOMES} JOIN ${deliveries} ON ${IS_OPEN}
  WHERE o.value->>'subscriptionId' = c.value->>'subscriptionId')`);

/** Records outcomes and settles deliveries; applied twice, it changes nothing the second time. */
export function settle(holder: string, settlements: Settlement[]): Statements<unknown> {
  const failed = settlements.some(({ state }) => state !== "delivered");
  return transaction(
    jsonParameters(settlements).map((outcomes) =>
      transaction([
        // Before the update: afterwards, neither this nor a second try finds the delivery pending.
        ...(failed ? [insertFailures({ holder, outcomes })] : []),
        countOutcomes(countAttempts(JSON.parse(outcomes)), { holder, outcomes }),
        updateDeliveries({ holder, outcomes }),
      ]),
    ),
  );
}
