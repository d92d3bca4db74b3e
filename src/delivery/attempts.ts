import { type SQL, sql } from "drizzle-orm";
import type { DeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { DAY_MS } from "../contract/time.ts";
import { excluded, insertFrom, mapColumns } from "../db/builder.ts";
import { attempts, deliveries, deliveryCounts, subscriptions } from "../db/schema.ts";

/*
 * Stores a delivery attempt beside the state of its delivery: the attempt itself, unless it is a success that ends the
 * delivery, and its share in the counts.
 *
 * Attempts are counted by subscription, UTC day, event type and result. The transaction that records outcomes adds up
 * those of a subscription together, which costs one row however many attempts it had.
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
  subscriptionId: string;
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

/** The counts that a transaction adds to a subscription's day. */
export interface CountsOfDay {
  subscriptionId: string;
  /** When the UTC day started. */
  day: number;
  counts: Record<string, number>;
}

/** Counts attempts by subscription and by the day on which they ended. */
export function countAttempts(attempts: readonly EndedAttempt[]): CountsOfDay[] {
  const days = new Map<string, CountsOfDay>();
  for (const attempt of attempts) {
    const { subscriptionId, type, state, outcome, startedAt, durationMs, response } = attempt;
    const day = startOfDay(startedAt + durationMs);
    const key = `${subscriptionId} ${day}`;
    const ofDay = days.get(key) ?? { subscriptionId, day, counts: {} };
    days.set(key, ofDay);
    add(ofDay.counts, `${type} ${state === "pending" ? "failed" : state}`, 1);
    if (response) add(ofDay.counts, "responses", 1);
    // An attempt without a response has no response time.
    if (outcome === "answered") add(ofDay.counts, `ms ${boundOf(durationMs)}`, 1);
  }
  return [...days.values()];
}

/**
 * A statement that adds the placeholder `counts`, `CountsOfDay` in a JSON array, to the stored counts.
 *
 * @param isWanted SQL condition on `subscriptions` and the row `added` of `json_each`, whose value is a `CountsOfDay`.
 *   It must be false when the transaction is applied a second time, or the attempts count twice.
 */
export function addCounts(isWanted: SQL) {
  const merged = sql`(
    SELECT json_group_object(key, total) FROM (
      SELECT key, sum(value) AS total FROM (
        SELECT key, value FROM json_each(${deliveryCounts.counts})
        UNION ALL
        SELECT key, value FROM json_each(excluded.counts))
      GROUP BY key))`;
  return insertFrom(
    deliveryCounts,
    {
      workspaceId: subscriptions.workspaceId,
      subscriptionId: subscriptions.id,
      day: sql`added.value->>'day'`,
      counts: sql`added.value->'counts'`,
    },
    sql`FROM json_each(${sql.placeholder("counts")}) AS added
      JOIN ${subscriptions} ON ${subscriptions.id} = added.value->>'subscriptionId'
      WHERE ${isWanted}
      ON CONFLICT DO UPDATE SET counts = ${merged}`,
  );
}

/** Returns when the UTC day of a time started. */
export function startOfDay(time: number): number {
  return Math.floor(time / DAY_MS) * DAY_MS;
}

function boundOf(durationMs: number): number {
  const bounds: readonly number[] = RESPONSE_TIME_BOUNDS_MS;
  return bounds.find((bound) => durationMs <= bound) ?? (bounds.at(-1) as number);
}

function add(counts: Record<string, number>, key: string, count: number): void {
  counts[key] = (counts[key] ?? 0) + count;
}
