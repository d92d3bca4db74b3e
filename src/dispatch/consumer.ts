import { openDatabase } from "../db/databases.ts";
import { CONCURRENCY_MAX, succeeded } from "../delivery/policy.ts";
import { createSender, type Sender } from "../delivery/send.ts";
import { isWakeUp, noteMessage, sendWakeUps, type WakeUpMessage } from "../delivery/wake.ts";
import { log, logError } from "../log.ts";
import { withTimeout } from "../primitives/timing.ts";
import { LEASE_MS } from "./claims.ts";
import { type DispatchPorts, deliver } from "./deliver.ts";

/*
 * The path of an event, file by file:
 *
 * 1. recording/record.ts commits a record that a call of platform/records.ts reports. In the same transaction,
 *    events/outbox.ts writes the event and a delivery for each subscription.
 * 2. That transaction also selects the subscriptions to wake. Its caller sends a wake-up message for each to a queue
 *    (delivery/wake.ts). It is a hint, which may be lost or come twice.
 * 3. This consumer starts a dispatch for each subscription that a batch of messages names.
 * 4. deliver.ts is the dispatch: it claims, sends and settles until nothing may be sent. claims.ts has the transactions.
 * 5. delivery/send.ts makes a request, which delivery/post.ts sends. deliver.ts then asks delivery/policy.ts what follows
 *    from the outcome: when the delivery is retried, and whether the circuit of its event type opens or closes.
 * 6. When a dispatch ends, this consumer sends the next wake-up message. A retry begins with one that is delayed.
 */

/**
 * How long a batch occupies its queue consumer. Most dispatches end within this time, so `max_concurrency` bounds
 * them. One that waits for a slow endpoint continues in the background, while its queue goes on: the compatibility flag
 * `queue_consumer_no_wait_for_wait_until` lets it.
 */
const CONSUMER_HELD_MS = 2_000;

/**
 * Consumes the delivery queues: sends the due deliveries of the subscriptions that the messages name. Messages are
 * only hints. The deliveries themselves are in the database, so a lost or repeated message does no harm.
 *
 * @param sender prepares deliveries, and makes attempts; tests replace it.
 */
export async function consume(
  messages: readonly Message[],
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  sender: Sender = createSender(env),
): Promise<void> {
  const wakeUps = new Map<string, WakeUpMessage>();
  for (const { body, attempts } of messages) {
    // A late message may name the database from which the workspace has moved, so the key has both.
    if (isWakeUp(body, env)) wakeUps.set(`${body.database} ${body.subscriptionId}`, body);
    // Its body and id are not logged, because its origin is unknown.
    else log("queue_message_invalid", { attempts });
  }
  const work = dispatchAll([...wakeUps.values()], env, sender);
  await withTimeout(CONSUMER_HELD_MS, work, () => {});
  for (const message of messages) message.ack();
  ctx.waitUntil(work);
}

/**
 * Dispatches the subscriptions concurrently. Each has the same share of the connections. A batch has at most six
 * (`max_batch_size` in wrangler.toml), so that each has one of its own.
 */
async function dispatchAll(wakeUps: WakeUpMessage[], env: Env, sender: Sender): Promise<void> {
  const startedAt = Date.now();
  const connections = Math.max(1, Math.floor(CONCURRENCY_MAX / wakeUps.length));
  const count = { delivered: 0, failed: 0 };
  const ports: DispatchPorts = {
    now: Date.now,
    random: Math.random,
    prepare: sender.prepare,
    // Counts attempts for the log.
    async attempt(...request) {
      const outcome = await sender.attempt(...request);
      count[succeeded(outcome) ? "delivered" : "failed"]++;
      return outcome;
    },
  };
  await Promise.all(wakeUps.map((wakeUp) => dispatch(wakeUp, env, ports, connections)));
  const durationMs = Date.now() - startedAt;
  if (count.delivered + count.failed > 0)
    log("dispatched", { subscriptions: wakeUps.length, ...count, durationMs });
}

/** Sends the due deliveries of a subscription, and then its next wake-up message. */
async function dispatch(
  { subscriptionId, queue, database }: WakeUpMessage,
  env: Env,
  ports: DispatchPorts,
  connections: number,
): Promise<void> {
  try {
    const db = openDatabase(env, database);
    const next = await deliver(db, subscriptionId, queue, ports, connections);
    if (next && (await sendWakeUps(env, database, [next]))) await noteMessage(db, next);
  } catch (error) {
    logError("dispatch_failed", error, { database, webhookId: subscriptionId });
    // Its lease has ended by then, unless it was released.
    const wakeAt = Date.now() + LEASE_MS;
    await sendWakeUps(env, database, [{ subscriptionId, queue, wakeAt }]);
  }
}
