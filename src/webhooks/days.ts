import { and, count, desc, eq, gte, lt, sql } from "drizzle-orm";
import type { DeliveryState } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { DAY_MS, isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, transaction } from "../db/client.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { STATE } from "./conditions.ts";
import type { DayView } from "./views.ts";

/** Number of days for which the portal counts deliveries, including today... */
const PORTAL_DAYS = 7;
/** ...and the maximum it reads per day; the newest ones. */
export const PORTAL_DAY_MAX = 1_000;

/**
 * Counts a subscription's deliveries by the day of their events, oldest day first. Reads up to
 * `PORTAL_DAY_MAX` of each day, test events among them.
 */
export async function countDays(
  db: Database,
  subscriptionId: string,
  now: number,
): Promise<DayView[]> {
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  const days = Array.from(
    { length: PORTAL_DAYS },
    (_, i) => today - (PORTAL_DAYS - 1 - i) * DAY_MS,
  );
  // Event ids are sorted by time: a day is a range of the primary key.
  const { subscriptionId: id, eventId } = deliveries;
  // Once delivered, it counts as delivered, even while it is being sent again.
  const state = sql<DeliveryState>`iif(${deliveries.deliveredEarlier}, 'delivered', ${STATE})`;
  const attempts = sql<number>`${deliveries.attempts} + ${deliveries.earlierAttempts}`;
  const counts = days.map((startsAt) => {
    const newest = qb
      .select({ state: state.as("state"), attempts: attempts.as("attempts") })
      .from(subscriptions)
      .crossJoin(deliveries)
      .where(
        and(
          eq(subscriptions.id, subscriptionId),
          eq(id, subscriptionId),
          gte(eventId, eventIdAt(startsAt)),
          lt(eventId, eventIdAt(startsAt + DAY_MS)),
        ),
      )
      .orderBy(desc(eventId))
      .limit(PORTAL_DAY_MAX)
      .as("newest");
    const sum = sql<number>`sum(${newest.attempts})`;
    return qb
      .select({ state: newest.state, deliveries: count(), attempts: sum })
      .from(newest)
      .groupBy(sql`${newest.state}`);
  });
  const found = await commit(db, transaction(counts));
  return found.map((states, i) => {
    const figures = { pending: 0, delivered: 0, exhausted: 0, cancelled: 0, attempts: 0 };
    let read = 0;
    for (const { state, deliveries, attempts } of states) {
      read += deliveries;
      if (state === "test") continue;
      figures[state] = deliveries;
      figures.attempts += attempts;
    }
    const truncated = read === PORTAL_DAY_MAX;
    return { date: isoTime(days[i] ?? today).slice(0, 10), ...figures, truncated };
  });
}
