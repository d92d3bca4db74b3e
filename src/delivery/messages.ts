import { z } from "@hono/zod-openapi";
import { isId } from "../contract/ids.ts";
import { DIRECTORY, isBound } from "../db/databases.ts";
import { logError } from "../log.ts";
import { chunk } from "../primitives/chunk.ts";
import { type QueueName, queueOf } from "./policy.ts";

/*
 * A wake-up message is a hint to look in the database for deliveries of a subscription. It is immediate, or delayed
 * until the next delivery may be sent. While something is pending, a dispatch leases the subscription, or a message is
 * underway that arrives in time, or the workspace is moving, which ends with wake-ups. If a message is lost or a process
 * dies, the scheduled job wakes the subscription (`findLate`).
 *
 * A delayed message is sent if the last one that was noted (`notedWakeAt`) does not arrive in time, as follows. It is also
 * sent after a failed dispatch (consumer.ts) and after a repeated round (`makeRound`). A note that another has replaced
 * is forgotten, although its message still arrives, which does no harm.
 *
 * 1. A round finds that no noted message arrives in time. It notes in the column `notedWakeAt` when a new one is to
 *    arrive (`noteWakeUps` in round.ts). Another dispatch that finds the same delivery not due yet also finds the note,
 *    so only one message is sent.
 * 2. When the session ends, it sends that message, with the noted time in `wakeAt` (`nextWakeUp`).
 * 3. When the message arrives, the next session passes this time on to its rounds as `arrivedWakeAt`. A note for
 *    this time or an earlier one counts as arrived, even if the clock of this dispatch is behind. The round that leases
 *    the subscription clears such a note, because the clock of a later dispatch may be behind, too.
 */

/** A subscription with deliveries to send or to mark as cancelled, and the queue for its message. */
export interface WakeUp {
  subscriptionId: string;
  queue: QueueName;
  /** When its message is to arrive, in Unix milliseconds; at once if absent. */
  wakeAt?: number;
}

/** What decides about the next wake-up of a subscription, as a round has found it: see `RoundSubscription` in round.ts. */
interface WakeUpFacts {
  subscriptionId: string;
  slow: boolean;
  cancelling: boolean;
  maySend: boolean;
  leasedElsewhereUntil: number | null;
  nextSendAt: number | null;
}

/**
 * Decides how to wake a subscription next: at once, or later if nothing is due yet, which is how retries begin.
 * Returns null if nothing is pending, if the subscription may not be sent to, or if another message or dispatch takes
 * care of it.
 *
 * @param notedWakeAt when the delayed message arrives that a round of the session has noted; null if none has.
 */
export function nextWakeUp(
  subscription: WakeUpFacts,
  notedWakeAt: number | null,
  now: number,
): WakeUp | null {
  const { subscriptionId, nextSendAt, leasedElsewhereUntil, cancelling, maySend } = subscription;
  // The dispatch that leases it looks for more before it releases the lease. If that dispatch has died, the
  // scheduled job wakes the subscription.
  if (leasedElsewhereUntil !== null) return null;
  const wakeUp = { subscriptionId, queue: queueOf(subscription) };
  if (cancelling) return wakeUp;
  if (nextSendAt === null || !maySend) return null;
  // The message has the noted time, even if that has passed since the round (step 2 above).
  if (notedWakeAt !== null) return { ...wakeUp, wakeAt: notedWakeAt };
  // If the next delivery may be sent later, a message is underway that arrives in time, or the round would have noted one.
  return nextSendAt <= now ? wakeUp : null;
}

/** A message of the delivery queues. It names its queue, because a deployment may rename queues. */
const WakeUpMessage = z.strictObject({
  subscriptionId: z.string().refine((id) => isId("webhook", id)),
  queue: z.enum(["fast", "slow"]),
  /** The name of the subscription's database; if absent, the one that holds the workspace directory. */
  database: z.string().optional(),
  /**
   * See `WakeUp`. The message may come earlier: by the clock of its consumer, or because no message is delayed by more
   * than `DELAY_MAX_SECONDS`.
   */
  wakeAt: z.number().optional(),
});
export type WakeUpMessage = z.infer<typeof WakeUpMessage>;

/** Whether a message is exactly what `sendWakeUps` sends, for a database that is bound. */
export function isWakeUp(message: Message, env: Env): message is Message<WakeUpMessage> {
  const { success, data } = WakeUpMessage.safeParse(message.body);
  return success && isBound(env, data.database ?? DIRECTORY);
}

/** The longest delay of a message that Cloudflare Queues accepts. */
const DELAY_MAX_SECONDS = 86_400;
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
  // By the endpoint, not by the attempt: first attempts and retries go through the same queue.
  const queues = { fast: env.DELIVERIES, slow: env.REDELIVERIES };
  const sending: Promise<boolean>[] = [];
  for (const [queue, group] of Map.groupBy(wakeUps, (wakeUp) => wakeUp.queue)) {
    const bodyOf = new Map<string, WakeUpMessage>();
    for (const wakeUp of group)
      bodyOf.set(wakeUp.subscriptionId, database === DIRECTORY ? wakeUp : { ...wakeUp, database });
    const bodies = [...bodyOf.values()];
    for (const batch of chunk(bodies, MESSAGES_MAX)) sending.push(sendBatch(queues[queue], batch));
  }
  const accepted = await Promise.all(sending);
  return accepted.every(Boolean);
}

async function sendBatch(queue: Queue, bodies: WakeUpMessage[]): Promise<boolean> {
  try {
    await queue.sendBatch(bodies.map((body) => ({ body, delaySeconds: delayOf(body) })));
    return true;
  } catch (error) {
    logError("queue_send_failed", error, { messages: bodies.length });
    return false;
  }
}

function delayOf({ wakeAt = 0 }: WakeUpMessage): number {
  const seconds = Math.ceil((wakeAt - Date.now()) / 1000);
  return Math.min(Math.max(0, seconds), DELAY_MAX_SECONDS);
}
