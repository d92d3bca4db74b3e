import { type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { IS_PENDING } from "../subscriptions/conditions.ts";
import { PROBE_AT_LEAST_MS } from "./policy.ts";

/*
 * In which order a subscription's pending deliveries are posted, and when: `heldUntil` in policy.ts as SQL.
 *
 * They form a queue for each kind of event and each priority, in the order in which they are due: so a
 * kind that is rejected holds up no other, and what was never tried goes before what failed before or is
 * sent again. The index of pending deliveries begins with the queue, so each look into one reads a row.
 */

/** A table expression: the queues that a subscription may have. */
export const QUEUES = sql.raw(
  `json_each('${JSON.stringify(WebhookEvent.options.flatMap((type) => [0, 1, 2].map((priority) => [type, priority])))}') AS q`,
);

/** SQL condition: the queue has what failed before, or is sent again. */
export const HAS_FAILED = sql`q.value->>1 = 2`;

/** SQL condition: the delivery is pending, and in the queue. */
export const IS_QUEUED = sql`${IS_PENDING} AND ${deliveries.type} = q.value->>0 AND ${deliveries.priority} = q.value->>1`;

/** SQL expression: until when a delivery waits for its endpoint; 0 if that does not fail, or it is sent by hand. */
function heldUntil(type: SQL, priority: SQL): SQL {
  const isRejected = sql`${subscriptions.rejections} -> (${type}) IS NOT NULL`;
  return sql`iif(${priority} = 1, 0, max(${subscriptions.nextAt}, iif(${isRejected}, ${subscriptions.rejectedUntil}, 0)))`;
}

/** SQL expression: when a pending delivery may be sent, in Unix milliseconds. */
export const NEXT_ATTEMPT_AT = sql<number>`max(${deliveries.dueAt}, ${heldUntil(sql`${deliveries.type}`, sql`${deliveries.priority}`)})`;

/** SQL expression: until when the queue waits for the endpoint. */
export const HELD_UNTIL = heldUntil(sql`q.value->>0`, sql`q.value->>1`);

/** SQL condition: the queue's endpoint fails, so it is probed with one post at a time. */
export const IS_PROBED = sql`(${HELD_UNTIL} > 0)`;

// Different events fail: then none of them waits longer than this, even if its own turn is later.
const NEXT_PROBE_AT = sql`iif(${IS_PROBED} AND json_array_length(${subscriptions.failedEvents}) > 1,
  ${subscriptions.lastAttempt}->>'at' + ${PROBE_AT_LEAST_MS}, NULL)`;

const TURN_AT = sql`min(${deliveries.dueAt}, coalesce(${NEXT_PROBE_AT}, ${deliveries.dueAt}))`;
const EVER = Number.MAX_SAFE_INTEGER;

/** SQL expression: what is due by this time in the queue may be posted now, but for the wait of its endpoint. */
export function dueBy(now: SQL): SQL {
  return sql`iif(coalesce(${NEXT_PROBE_AT} <= ${now}, 0), ${sql.raw(`${EVER}`)}, ${now})`;
}

/**
 * SQL expression: when the next delivery of the subscription may be posted; null if none is pending.
 *
 * @param condition on its deliveries.
 */
export function readyAt(condition: SQL = sql`1`): SQL<number | null> {
  return sql`(SELECT min(max(${HELD_UNTIL}, (SELECT ${TURN_AT} FROM ${deliveries}
    WHERE ${IS_QUEUED} AND ${condition} ORDER BY ${deliveries.dueAt} LIMIT 1))) FROM ${QUEUES})`;
}
