import { sql } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { REDELIVERY_MAX_AGE_MS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import { deliveries, events, type LastAttempt, type NoticeKind } from "../db/schema.ts";
import { rejectedKinds } from "../history/rejections.ts";
import type { DueNotice } from "./notices.ts";

/** What administrators are told about a subscription; times are Unix milliseconds. */
export interface Notice {
  kind: NoticeKind;
  workspaceName: string;
  subscriptionId: string;
  host: string;
  /** When what it tells of began. */
  since: number;
  /** The kinds of events that it is about. */
  events: WebhookEvent[];
  last: Pick<LastAttempt, "outcome" | "status"> | null;
  isReminder: boolean;
  /** What a disabled subscription has missed; null for others. */
  missed: Missed | null;
}

export interface Missed {
  /** How many events, of those examined. */
  count: number;
  /** Whether there may be more, which were not examined. */
  more: boolean;
  /** When the first of them is too old to be sent; null if there is none. */
  until: number | null;
}

/** What a notice tells of now; null if it is no longer true. */
export async function describe(
  db: Database,
  env: Env,
  due: DueNotice,
  now: number,
): Promise<Notice | null> {
  const { kind, since, subscription, accessGranted, workspaceName, subscriptionId } = due;
  if (!subscription || !accessGranted) return null;
  const { url, events, lastAttempt, failingSince, disabledAt } = subscription;
  if ((disabledAt !== null) !== (kind === "disabled")) return null;
  const isReminder = due.reminders > 0;
  const about = { kind, workspaceName, subscriptionId, since, host: new URL(url).host, isReminder };
  if (kind === "rejecting") {
    const rejected = rejectedKinds(subscription, now).filter((one) => one.since === since);
    const [last] = rejected;
    return last ? { ...about, events: rejected.map(({ type }) => type), last, missed: null } : null;
  }
  if (failingSince !== since) return null;
  const keptMs = Math.min(REDELIVERY_MAX_AGE_MS, env.EVENTS_KEPT_DAYS * DAY_MS);
  const missed = kind === "disabled" ? await findMissed(db, due, events, keptMs, now) : null;
  return { ...about, events, last: lastAttempt, missed };
}

/** Maximum events that are examined for those that a subscription has missed. */
const MISSED_EXAMINED_MAX = 5_000;

/** The events of these kinds that a subscription has not been delivered since it began to fail. */
async function findMissed(
  db: Database,
  { workspaceId, subscriptionId, since }: DueNotice,
  kinds: WebhookEvent[],
  keptMs: number,
  now: number,
): Promise<Missed> {
  const from = eventIdAt(Math.max(since, now - keptMs));
  const isMissed = sql`type IN (SELECT value FROM json_each(${JSON.stringify(kinds)})) AND NOT EXISTS (
    SELECT 1 FROM ${deliveries} WHERE ${deliveries.subscriptionId} = ${subscriptionId}
      AND ${deliveries.eventId} = e.id AND ${deliveries.state} = 'delivered')`;
  // Raw SQL: Drizzle has no FILTER.
  const found = await db.get<{ examined: number; missed: number; oldest: number | null }>(sql`
    SELECT count(*) AS examined, count(*) FILTER (WHERE ${isMissed}) AS missed,
      min(created_at) FILTER (WHERE ${isMissed}) AS oldest
    FROM (SELECT id, type, created_at FROM ${events}
      WHERE ${events.workspaceId} = ${workspaceId} AND ${events.id} >= ${from} AND NOT ${events.test}
      ORDER BY ${events.id} LIMIT ${MISSED_EXAMINED_MAX}) AS e`);
  return {
    count: found.missed,
    more: found.examined === MISSED_EXAMINED_MAX,
    until: found.oldest === null ? null : found.oldest + keptMs,
  };
}
