import { sql } from "drizzle-orm";
import { DeliveryState } from "../contract/enumerations.ts";
import { eventIdAt, eventTimeOf } from "../contract/ids.ts";
import { DELIVERIES_COUNTED_MAX as MAX } from "../contract/limits.ts";
import { DAY_MS, isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, read } from "../db/client.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { IS_PENDING, PENDING, STATE } from "../subscriptions/conditions.ts";
import type { DayView } from "./views.ts";

/** Number of days for which the portal counts deliveries, including today. */
const PORTAL_DAYS = 7;

/**
 * Counts a subscription's deliveries by the day of their events, oldest day first. Once delivered, one counts
 * as delivered, even while it is being sent again.
 *
 * Delivered ones are counted among the first `MAX` of a day, so that no later one lowers their number; the
 * others, of which there are few, among as many in their own index.
 */
export async function countDays(db: Database, webhookId: string, now: number): Promise<DayView[]> {
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  const days = Array.from(
    { length: PORTAL_DAYS },
    (_, i) => today - (PORTAL_DAYS - 1 - i) * DAY_MS,
  );
  const { subscriptionId, eventId, state, deliveredEarlier } = deliveries;
  // Event ids are sorted by time: a day is a range of the primary key.
  const ranges = JSON.stringify(days.map((at) => [eventIdAt(at), eventIdAt(at + DAY_MS)]));
  const isOfDay = sql`${subscriptionId} = ${webhookId} AND ${eventId} >= day.value->>0 AND ${eventId} < day.value->>1`;
  const isNow = (which: string) => sql`total(${state} = ${which} AND NOT ${deliveredEarlier})`;
  const { counted, waiting } = await read(db, {
    counted: qb.all<{ first: string; failed: string }>(sql`SELECT
      (SELECT json_array(count(*), total(${state} = 'delivered' OR ${deliveredEarlier})) FROM (
        SELECT ${state}, ${deliveredEarlier} FROM ${deliveries}
        WHERE ${isOfDay} ORDER BY ${eventId} LIMIT ${MAX}) AS deliveries) AS first,
      (SELECT json_array(count(*), ${isNow("exhausted")}, ${isNow("cancelled")}) FROM (
        SELECT ${state}, ${deliveredEarlier} FROM ${deliveries} INDEXED BY deliveries_failed
        WHERE ${isOfDay} AND ${state} IN ('exhausted', 'cancelled') LIMIT ${MAX}) AS deliveries) AS failed
      FROM json_each(${ranges}) AS day`),
    waiting: qb.all<{ id: string; state: DeliveryState }>(sql`
      SELECT ${eventId} AS id, iif(${deliveredEarlier}, 'delivered', ${STATE}) AS state
      FROM ${subscriptions} CROSS JOIN ${PENDING}
      WHERE ${subscriptions.id} = ${webhookId} AND ${IS_PENDING} LIMIT ${MAX}`),
  });
  return counted.map(({ first, failed }, i) => {
    const startsAt = days[i] ?? today;
    const [all, delivered] = JSON.parse(first) as [number, number];
    const [failedRead, exhausted, cancelled] = JSON.parse(failed) as [number, number, number];
    const isIn = (id: string) => Math.floor(eventTimeOf(id) / DAY_MS) * DAY_MS === startsAt;
    const left = (state: DeliveryState) =>
      waiting.filter((one) => one.state === state && isIn(one.id)).length;
    const examined: Partial<Record<DeliveryState, number>> = {
      ...{ delivered: all, exhausted: failedRead, pending: waiting.length },
      cancelled: Math.max(failedRead, waiting.length),
    };
    return {
      date: isoTime(startsAt).slice(0, 10),
      ...{ pending: left("pending"), delivered, exhausted },
      cancelled: cancelled + left("cancelled"),
      atLeast: DeliveryState.options.filter((state) => examined[state] === MAX),
    };
  });
}
