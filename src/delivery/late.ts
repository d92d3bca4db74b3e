import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { SWEEP_MAX } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query } from "../db/client.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";
import { nextSendAt } from "./due.ts";
import type { WakeUp } from "./messages.ts";
import { queueOf } from "./policy.ts";

/* Finds subscriptions whose deliveries are late, because a queue has lost their message, or their dispatch has died. */

/**
 * A common table expression, `with_pending`, for `WITH RECURSIVE`: the ids of the subscriptions with pending
 * deliveries. It jumps from one subscription to the next in the index, however many pending deliveries each has.
 */
export function subscriptionsWithPending(after: string | Placeholder): SQL {
  // Raw SQL: Drizzle has no recursive queries.
  return sql`with_pending (id) AS (
      SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > ${after}
      UNION ALL
      SELECT (SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > with_pending.id)
      FROM with_pending WHERE with_pending.id IS NOT NULL)`;
}

/** How long a delivery must have been due before the scheduled job wakes its subscription. */
export const SWEEP_GRACE_MS = MINUTE_MS;

const late = prepared(
  qb.all<{ subscriptionId: string; slow: 0 | 1 }>(sql`
  WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
  SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow
  FROM with_pending JOIN ${subscriptions} ON ${subscriptions.id} = with_pending.id
  WHERE ${subscriptions.leasedUntil} <= ${sql.placeholder("asOf")} AND ${isWritable(subscriptions.workspaceId)}
    AND (${sql.placeholder("isSweep")} OR coalesce(${subscriptions.lastAttempt}->>'at', 0) <= ${sql.placeholder("asOf")})
    AND (${subscriptions.cancelling} AND ${sql.placeholder("isSweep")}
      OR ${nextSendAt()} <= ${sql.placeholder("asOf")} - ${SWEEP_GRACE_MS})
  LIMIT ${SWEEP_MAX}`),
);

/**
 * Finds up to `SWEEP_MAX` subscriptions, of all workspaces, that no dispatch has handled: their deliveries are late
 * or, for the scheduled job only, cancelled without having been marked so.
 *
 * @param after where the last call stopped; "" to start over.
 * @param asOf as of when they are late, in Unix milliseconds. The health check asks as of some time ago, and leaves out
 *   subscriptions with a later attempt.
 */
export async function findLate(
  db: Database,
  after: string,
  asOf: number,
  isSweep = false,
): Promise<{ wakeUps: WakeUp[]; after: string }> {
  const found = await query(db, late({ after, asOf, isSweep: isSweep ? 1 : 0 }));
  const last = found.length === SWEEP_MAX ? found.at(-1)?.subscriptionId : undefined;
  const wakeUps = found.map(({ subscriptionId, slow }) => ({
    subscriptionId,
    queue: queueOf({ slow: slow === 1 }),
  }));
  return { wakeUps, after: last ?? "" };
}
