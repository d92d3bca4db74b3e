import { z } from "@hono/zod-openapi";
import { and, eq, isNull, lte, sql } from "drizzle-orm";
import { isId } from "../contract/ids.ts";
import { SWEEP_MAX } from "../contract/limits.ts";
import { DAY_MS, MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, prepared, query, readAs, type Statements } from "../db/client.ts";
import { isBound } from "../db/databases.ts";
import { subscriptions } from "../db/schema.ts";
import { isWritable } from "../db/states.ts";
import { logError } from "../log.ts";
import { chunk } from "../primitives/chunk.ts";
import { nextSendAt, subscriptionsWithPending } from "./due.ts";

/*
 * A wake-up message is a hint to look in the database for deliveries of a subscription. dispatch/consumer.ts gets it,
 * and starts a dispatch. It is immediate, or delayed until the next delivery may be sent, which is how retries begin.
 *
 * Unless a message is lost or a process dies, each subscription with something pending is leased by a dispatch, or has a
 * message underway that arrives by the time its next delivery may be sent. After such a loss, the scheduled job wakes it
 * within a minute or two (`findLate`). Nothing is sent while a workspace moves; the move ends with messages.
 *
 * `nextMessageAt` of a subscription is when its next delayed message arrives. Without it, each event that is recorded
 * while a circuit is open would start a dispatch that sends one more message.
 */

/** The queue that carries a subscription's wake-up messages. */
export type QueueName = "fast" | "slow";

export function queueOf({ slow }: { slow: boolean | 0 | 1 }): QueueName {
  return slow ? "slow" : "fast";
}

/** A subscription with deliveries to send or to end, and the queue for its message. */
export interface WakeUp {
  subscriptionId: string;
  queue: QueueName;
  /** When its message is to arrive, in Unix milliseconds: at once if absent, and within `DELAY_MAX_MS`. */
  wakeAt?: number;
}

/** The longest delay of a message that Cloudflare Queues accepts. A later retry takes a second message. */
const DELAY_MAX_MS = DAY_MS;
/**
 * A message that is to arrive within this time counts as arrived: it may be the one that has started this dispatch, because
 * consumers' clocks differ a little. A larger difference leaves the subscription to the scheduled job.
 */
const ARRIVED_MS = 1_000;

/** The facts that decide about the next wake-up of a subscription, as the last transaction of a dispatch found them. */
export interface WakeUpFacts {
  subscriptionId: string;
  slow: boolean;
  /** When it is to be dispatched next, to send or to end deliveries; null if there is nothing to do. */
  dispatchAt: number | null;
  nextMessageAt: number;
}

/**
 * Decides how to wake a subscription next: at once, or later if nothing may be sent yet. Returns null if there is nothing to
 * do, or another message arrives in time.
 */
export function nextWakeUp(facts: WakeUpFacts, now: number): WakeUp | null {
  const { subscriptionId, dispatchAt, nextMessageAt } = facts;
  if (dispatchAt === null) return null;
  const wakeUp = { subscriptionId, queue: queueOf(facts) };
  if (dispatchAt <= now) return wakeUp;
  if (arrivesInTime(nextMessageAt, dispatchAt, now)) return null;
  return { ...wakeUp, wakeAt: Math.min(dispatchAt, now + DELAY_MAX_MS) };
}

/** Whether a delayed message is underway that arrives by the time of the next dispatch. */
function arrivesInTime(nextMessageAt: number, dispatchAt: number, now: number): boolean {
  return nextMessageAt > now + ARRIVED_MS && nextMessageAt <= dispatchAt;
}

/** Notes when the delayed message of a subscription arrives. */
export async function noteMessage(db: Database, { subscriptionId, wakeAt }: WakeUp) {
  if (wakeAt === undefined) return;
  const { id, workspaceId } = subscriptions;
  const isNoted = and(eq(id, subscriptionId), isWritable(workspaceId));
  await commit(db, qb.update(subscriptions).set({ nextMessageAt: wakeAt }).where(isNoted));
}

/**
 * Selects a wake-up for each subscription of a workspace that has something pending, unless a message arrives in time, or
 * a dispatch leases it. The dispatch that leases it claims what is committed before it releases the lease.
 *
 * A subscription whose next delivery may only be sent later is woken at once, too. Only a dispatch sends a delayed message
 * (`nextWakeUp`), because it also notes when that arrives.
 *
 * @param now Unix milliseconds.
 */
export function selectWakeUps(workspaceId: string, now: number): Statements<WakeUp[]> {
  return readAs(selectFreeSubscriptions({ workspaceId, now }), (rows) =>
    toWakeUps(
      // All others are woken, even if nothing of theirs is due yet.
      rows.filter(
        ({ nextSendAt, nextMessageAt }) =>
          nextSendAt !== null && !arrivesInTime(nextMessageAt, nextSendAt, now),
      ),
    ),
  );
}

const selectFreeSubscriptions = prepared(
  qb
    .select({
      subscriptionId: subscriptions.id,
      slow: subscriptions.slow,
      nextMessageAt: subscriptions.nextMessageAt,
      nextSendAt: nextSendAt(),
    })
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        lte(subscriptions.leasedUntil, sql.placeholder("now")),
      ),
    ),
);

/** A row of a query for subscriptions to wake. */
interface ToWake {
  subscriptionId: string;
  /** A query in SQL returns 0 or 1. */
  slow: boolean | 0 | 1;
}

/** Returns messages that wake subscriptions at once. */
export function toWakeUps(rows: readonly ToWake[]): WakeUp[] {
  return rows.map(({ subscriptionId, slow }) => ({ subscriptionId, queue: queueOf({ slow }) }));
}

/** How long a delivery must have been due before the scheduled job wakes its subscription. */
export const SWEEP_GRACE_MS = MINUTE_MS;

const late = prepared(
  qb.all<ToWake>(sql`
  WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
  SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow
  FROM with_pending JOIN ${subscriptions} ON ${subscriptions.id} = with_pending.id
  WHERE ${subscriptions.leasedUntil} <= ${sql.placeholder("asOf")} AND ${isWritable(subscriptions.workspaceId)}
    AND coalesce(${subscriptions.lastAttempt}->>'at', 0) <= ${sql.placeholder("triedBefore")}
    AND ${nextSendAt()} <= ${sql.placeholder("asOf")} - ${SWEEP_GRACE_MS}
  LIMIT ${SWEEP_MAX}`),
);

/**
 * Finds up to `SWEEP_MAX` subscriptions, of all workspaces, that no dispatch has handled, although a delivery has been due
 * for `SWEEP_GRACE_MS`.
 *
 * @param after where the last call stopped; "" to start over.
 * @param asOf the time for which that is asked, in Unix milliseconds. Subscriptions that are leased until later are left out.
 * @param triedBefore leaves out subscriptions with a later attempt.
 */
export async function findLate(
  db: Database,
  after: string,
  asOf: number,
  triedBefore: number,
): Promise<{ wakeUps: WakeUp[]; after: string }> {
  const found = await query(db, late({ after, asOf, triedBefore }));
  const last = found.length === SWEEP_MAX ? found.at(-1)?.subscriptionId : undefined;
  return { wakeUps: toWakeUps(found), after: last ?? "" };
}

/** A message of the delivery queues. It names its queue, because a deployment may rename queues. */
const WakeUpMessage = z.strictObject({
  subscriptionId: z.string().refine((id) => isId("webhook", id)),
  queue: z.enum(["fast", "slow"]),
  /** The name of the subscription's database. */
  database: z.string(),
});
export type WakeUpMessage = z.infer<typeof WakeUpMessage>;

/** Whether the body of a message is exactly what `sendWakeUps` sends, for a database that is bound. */
export function isWakeUp(body: unknown, env: Env): body is WakeUpMessage {
  const { success, data } = WakeUpMessage.safeParse(body);
  return success && isBound(env, data.database);
}

/** Maximum messages that Cloudflare Queues accepts in one call. */
const MESSAGES_MAX = 100;

/**
 * Sends a wake-up message for each subscription, delayed until its `wakeAt`. If a queue does not accept it, nothing
 * is lost, because the scheduled job finds deliveries that are late.
 *
 * @param database the name of the subscriptions' database.
 * @returns whether the queues accepted every message.
 */
export async function sendWakeUps(
  env: Env,
  database: string,
  wakeUps: readonly WakeUp[],
): Promise<boolean> {
  // First attempts and retries go through the same queue, which depends on the endpoint only.
  const queues = { fast: env.DELIVERIES, slow: env.SLOW_DELIVERIES };
  const sending: Promise<boolean>[] = [];
  for (const [queue, group] of Map.groupBy(wakeUps, (wakeUp) => wakeUp.queue)) {
    const requests = group.map(({ subscriptionId, wakeAt = 0 }) => ({
      body: { subscriptionId, queue, database } satisfies WakeUpMessage,
      delaySeconds: delayUntil(wakeAt),
    }));
    for (const batch of chunk(requests, MESSAGES_MAX))
      sending.push(sendBatch(queues[queue], batch));
  }
  const accepted = await Promise.all(sending);
  return accepted.every(Boolean);
}

async function sendBatch(
  queue: Queue,
  requests: MessageSendRequest<WakeUpMessage>[],
): Promise<boolean> {
  try {
    await queue.sendBatch(requests);
    return true;
  } catch (error) {
    logError("queue_send_failed", error, { messages: requests.length });
    return false;
  }
}

function delayUntil(wakeAt: number): number {
  return Math.max(0, Math.ceil((wakeAt - Date.now()) / 1000));
}
