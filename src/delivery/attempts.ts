import { type Placeholder, type SQL, sql } from "drizzle-orm";
import type { DeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { DAY_MS, dayOf } from "../contract/time.ts";
import { excluded, insertFrom, mapColumns } from "../db/builder.ts";
import { attempts, type DailyCounts, deliveries, subscriptions } from "../db/schema.ts";

/*
 * Stores a delivery attempt beside the state of its delivery: the attempt itself, unless it is a success that ends the
 * delivery, and its share in the daily counts.
 *
 * A subscription counts its attempts by UTC day, event type and result, in a column of its row. The transaction that records
 * outcomes changes that row anyway, so counting writes no other.
 *
 * The counts of a day are a flat JSON object. `lead.created delivered`, `lead.created failed` and
 * `lead.created exhausted` count attempts; `failed` ones will be retried. `ms 200` counts the responses that
 * took at most 200 ms, and longer than the bound before it. `responses` counts the stored responses.
 */

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

/** Upper bounds of the histogram of response times. The last one also counts responses that took longer. */
export const RESPONSE_TIME_BOUNDS_MS = [
  10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000,
  7_500, 10_000,
] as const;

/** A finished attempt; times are Unix milliseconds. */
export interface EndedAttempt {
  type: WebhookEvent;
  /** The state of the delivery after the attempt: `pending` if it will be retried. */
  state: DeliveryState;
  /** The kind of its outcome, such as `answered` or `timed_out`. */
  outcome: string;
  startedAt: number;
  durationMs: number;
  /** The stored part of its response, if there is one. */
  response?: string | null;
}

/** Counts attempts by the day on which they ended. */
export function countAttempts(attempts: readonly EndedAttempt[]): DailyCounts {
  const days: DailyCounts = {};
  for (const { type, state, outcome, startedAt, durationMs, response } of attempts) {
    const day = dayOf(startedAt + durationMs);
    const counts = days[day] ?? {};
    days[day] = counts;
    add(counts, `${type} ${state === "pending" ? "failed" : state}`, 1);
    if (response) add(counts, "responses", 1);
    // An attempt without a response has no response time.
    if (outcome === "answered") add(counts, `ms ${boundOf(durationMs)}`, 1);
  }
  return days;
}

/** Number of days that are counted, including today. */
export const DAYS_COUNTED = 7;

/** The values of the placeholders of `WITH_ADDED_COUNTS`. */
export function countsToAdd(added: DailyCounts, now: number) {
  return { counts: JSON.stringify(added), firstDay: dayOf(now - (DAYS_COUNTED - 1) * DAY_MS) };
}

/** SQL expression: the daily counts of a subscription with those of the placeholder added, and without past days. */
export const WITH_ADDED_COUNTS = sql`(
  SELECT json_group_object(day, json(counts)) FROM (
    SELECT day, json_group_object(name, total) AS counts FROM (
      SELECT day.key AS day, count.key AS name, sum(count.value) AS total
      FROM (SELECT key, value FROM json_each(${subscriptions.dailyCounts})
          UNION ALL SELECT key, value FROM json_each(${sql.placeholder("counts")})) AS day
        CROSS JOIN json_each(day.value) AS count
      WHERE day.key >= ${sql.placeholder("firstDay")}
      GROUP BY 1, 2)
    GROUP BY 1))`;

/** SQL expression: how many responses were stored for a subscription on a day. */
export function responsesOn(day: string | Placeholder): SQL<number> {
  return sql<number>`coalesce(${subscriptions.dailyCounts}->${day}->>'responses', 0)`;
}

function boundOf(durationMs: number): number {
  const bounds: readonly number[] = RESPONSE_TIME_BOUNDS_MS;
  return bounds.find((bound) => durationMs <= bound) ?? (bounds.at(-1) as number);
}

function add(counts: Record<string, number>, key: string, count: number): void {
  counts[key] = (counts[key] ?? 0) + count;
}
