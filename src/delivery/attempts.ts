import { type SQL, sql } from "drizzle-orm";
import { excluded, insertFrom, mapColumns } from "../db/builder.ts";
import { attempts, deliveries } from "../db/schema.ts";

/** Maximum stored attempts of a delivery: the first ones and the last, however often it is sent. */
export const ATTEMPTS_KEPT = 100;

const DETAILS = ["at", "outcome", "status", "durationMs", "response"] as const;

const IS_OF_DELIVERY = sql`${attempts.subscriptionId} = ${deliveries.subscriptionId}
  AND ${attempts.eventId} = ${deliveries.eventId}`;

/**
 * Stores an attempt of each delivery in `source` as its last one.
 *
 * @param details the values of the columns.
 * @param source SQL from FROM on, with a WHERE clause.
 */
export function insertAttempts(details: Record<(typeof DETAILS)[number], SQL>, source: SQL) {
  return insertFrom(
    attempts,
    {
      subscriptionId: deliveries.subscriptionId,
      eventId: deliveries.eventId,
      attempt: sql`min(${ATTEMPTS_KEPT}, 1 + coalesce((SELECT max(${attempts.attempt}) FROM ${attempts}
        WHERE ${IS_OF_DELIVERY}), 0))`,
      ...details,
    },
    source,
  ).onConflictDoUpdate({
    target: [attempts.subscriptionId, attempts.eventId, attempts.attempt],
    set: mapColumns(attempts, [...DETAILS], excluded),
  });
}
