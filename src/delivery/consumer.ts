import { isServed } from "../contract/served.ts";
import { openDatabase } from "../db/client.ts";
import { bindingOf, DIRECTORY } from "../db/databases.ts";
import { log, logError } from "../log.ts";
import { withTimeout } from "../primitives/timing.ts";
import { dispatch } from "./dispatch.ts";
import { isWakeUp, sendWakeUps, type WakeUpMessage } from "./messages.ts";
import { succeeded } from "./outcome.ts";
import { CONCURRENCY_MAX, type QueueName, queueOf } from "./policy.ts";
import { LEASE_MS, type RoundSubscription } from "./round.ts";
import { createSender } from "./sender.ts";
import type { DispatchPorts } from "./session.ts";

/*
 * The way of an event, file by file:
 *
 * 1. events/outbox.ts writes the event and a delivery for each subscription, in the transaction of its record.
 * 2. messages.ts sends a wake-up message to a queue: a hint, which may be lost or come twice.
 * 3. This consumer starts a dispatch for the subscriptions that a batch of messages names.
 * 4. dispatch.ts runs a session for each of them (session.ts), which share connections (connections.ts).
 * 5. A session makes rounds (round.ts), in which it claims what schedule.ts says is due, and
 * 6. sends requests (sender.ts: bodies, signature.ts, post.ts); policy.ts decides how fast, and what is next.
 * 7. The next round records their outcomes.
 * 8. When the session ends, this consumer sends the next wake-up message. What the queues lose, the scheduled
 *    job finds (`findStuck` in schedule.ts).
 */

/** Maximum dispatches per invocation, which share its connections: one for each queue and database. */
const DISPATCHES_PER_INVOCATION = 3;
/**
 * How long a batch occupies its queue consumer. Most dispatches end within this time, so `max_concurrency` bounds
 * them; one that waits for a slow endpoint continues in the background, so that its queue goes on.
 */
const CONSUMER_HELD_MS = 2_000;
/** Delay before a dispatch that failed is made again: its leases have ended by then. */
const RETRY_DELAY_SECONDS = LEASE_MS / 1000;

/**
 * Consumes the delivery queues: sends the subscriptions that the messages name what is due to them. Messages are
 * only hints. The deliveries themselves are in the database, so a lost or repeated message does no harm.
 *
 * @param attempt makes one attempt; the simulation and tests replace it.
 */
export async function consume(
  messages: readonly Message[],
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  attempt?: DispatchPorts["attempt"],
): Promise<void> {
  const valid: Message<WakeUpMessage>[] = [];
  for (const message of messages) {
    if (isWakeUp(message, env)) valid.push(message);
    else {
      // Its body and id are not logged, because its origin is unknown.
      log("queue_message_invalid", { attempts: message.attempts });
      message.ack();
    }
  }
  const groups = Map.groupBy(
    valid,
    ({ body: { database = DIRECTORY, queue } }) => `${queue} ${database}`,
  );
  const batches = [...groups.values()];
  // The rest is retried in another invocation, which has connections of its own.
  for (const message of batches.splice(DISPATCHES_PER_INVOCATION).flat()) message.retry();
  const connections = Math.floor(CONCURRENCY_MAX / Math.max(1, batches.length));
  await Promise.all(batches.map((batch) => consumeBatch(batch, connections, env, ctx, attempt)));
}

/** Consumes messages of one queue and one database. */
async function consumeBatch(
  messages: Message<WakeUpMessage>[],
  connections: number,
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  attempt: DispatchPorts["attempt"] | undefined,
): Promise<void> {
  const { queue = "fast", database = DIRECTORY } = messages[0]?.body ?? {};
  const arrivals = new Map<string, number>();
  for (const { body } of messages) {
    const { subscriptionId, wakeAt = 0 } = body;
    arrivals.set(subscriptionId, Math.max(arrivals.get(subscriptionId) ?? 0, wakeAt));
  }
  const subscriptionIds = [...arrivals.keys()];
  const work = dispatchAndWake(database, arrivals, queue, connections, env, attempt).catch(
    async (error: unknown) => {
      logError("dispatch_failed", error, { database, subscriptions: subscriptionIds.length });
      const lost = subscriptionIds.map((subscriptionId) => ({ subscriptionId, queue }));
      await sendWakeUps(env, database, lost, RETRY_DELAY_SECONDS);
    },
  );
  await withTimeout(CONSUMER_HELD_MS, work, () => {});
  for (const message of messages) message.ack();
  ctx.waitUntil(work);
}

/**
 * Dispatches, and sends each subscription's next wake-up message as soon as its session has ended.
 *
 * @param arrivals the subscriptions, with the `wakeAt` of the delayed message that has arrived for each; else 0.
 */
async function dispatchAndWake(
  database: string,
  arrivals: ReadonlyMap<string, number>,
  queue: QueueName,
  connections: number,
  env: Env,
  attempt: DispatchPorts["attempt"] | undefined,
): Promise<void> {
  // Without a session, every query goes to the primary, as the two-second rule needs it.
  const db = openDatabase(bindingOf(env, database));
  const servesCrmSource = isServed(env.SERVED_ROUTES, "automations.crm_source");
  const sender = createSender(env);
  const makeAttempt = attempt ?? sender.attempt;
  const startedAt = Date.now();
  const count = { delivered: 0, failed: 0 };
  const waking: Promise<boolean>[] = [];
  const ports: DispatchPorts = {
    now: Date.now,
    random: Math.random,
    prepare: sender.prepare,
    async attempt(...request) {
      const outcome = await makeAttempt(...request);
      count[succeeded(outcome) ? "delivered" : "failed"]++;
      return outcome;
    },
    finished(subscription, wakeAt) {
      const delayMs = nextWakeUpMs(subscription, wakeAt, Date.now());
      if (delayMs === null) return;
      const { subscriptionId } = subscription;
      const wakeUp = { subscriptionId, queue: queueOf(subscription), ...(wakeAt && { wakeAt }) };
      waking.push(sendWakeUps(env, database, [wakeUp], Math.ceil(delayMs / 1000)));
    },
  };
  try {
    const options = { queue, connections, arrivals, servesCrmSource };
    await dispatch(db, [...arrivals.keys()], ports, options);
  } finally {
    const durationMs = Date.now() - startedAt;
    const subscriptions = arrivals.size;
    if (count.delivered + count.failed > 0)
      log("dispatched", { queue, subscriptions, ...count, durationMs });
    await Promise.all(waking);
  }
}

/**
 * Decides when to wake a subscription next, in milliseconds from now. Returns null if nothing is due, or if
 * another message or dispatch takes care of it.
 *
 * @param wakeAt when a delayed message must arrive; null if there is one in the queue.
 */
export function nextWakeUpMs(
  { nextAttemptAt, leasedElsewhereUntil, cancelling, maySend }: RoundSubscription,
  wakeAt: number | null,
  now: number,
): number | null {
  // The dispatch that leases it looks for more before it releases the lease. If that dispatch has died, the
  // scheduled job wakes the subscription.
  if (leasedElsewhereUntil !== null) return null;
  if (cancelling) return 0;
  if (nextAttemptAt === null || !maySend) return null;
  if (nextAttemptAt <= now) return 0;
  return wakeAt === null ? null : wakeAt - now;
}
