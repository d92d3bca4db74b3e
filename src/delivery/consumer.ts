import { openDatabase } from "../db/client.ts";
import { bindingOf, DIRECTORY } from "../db/databases.ts";
import { log, logError } from "../log.ts";
import { withTimeout } from "../primitives/timing.ts";
import { CONNECTIONS_MAX } from "./connections.ts";
import { dispatch } from "./dispatch.ts";
import { isWakeUp, sendWakeUps, type WakeUpMessage } from "./messages.ts";
import { succeeded } from "./outcome.ts";
import type { QueueName } from "./policy.ts";
import { LEASE_MS } from "./round.ts";
import { createSender } from "./sender.ts";
import type { DispatchPorts } from "./session.ts";

/*
 * The path of an event, file by file:
 *
 * 1. events/outbox.ts writes the event and a delivery for each subscription, in the transaction of its record.
 * 2. That transaction also selects the subscriptions to wake (`selectWakeUps` in due.ts). Its caller (platform/records.ts,
 *    http/routes/automations.ts) sends a wake-up message for each to a queue (messages.ts): a hint, which may be lost or
 *    come twice.
 * 3. This consumer starts a dispatch for the subscriptions that a batch of messages names.
 * 4. dispatch.ts runs a session for each of them (session.ts), which share connections (connections.ts).
 * 5. A session makes rounds. A round leases the subscription, and reads what is due; the conditions are in round.ts and
 *    due.ts. sender.ts makes the bodies of these deliveries, and signs them (endpoints/signature.ts).
 * 6. The session sends them (sender.ts, post.ts). From the outcomes (outcome.ts), policy.ts decides how fast, in which
 *    order, and when a failed delivery is retried.
 * 7. Rounds record the outcomes, about a second after each, and what is stored of attempts (attempts.ts) and of responses
 *    (response.ts). The round after the last request also releases the lease, unless it claims more.
 * 8. When the session has ended, it decides on the next wake-up message (`nextWakeUp` in messages.ts), which this consumer
 *    sends. A retry begins with one that is delayed until the delivery is due again. If the queues lose a message, the
 *    scheduled job finds its deliveries (`findLate` in due.ts, called by sweep.ts).
 *
 * cancellation.ts is about deliveries that end without a request.
 */

/** The ports of a dispatch that prepare deliveries and make attempts. */
type Sender = Pick<DispatchPorts, "prepare" | "attempt">;

/**
 * Maximum dispatches per invocation, which share its connections. A dispatch is for the messages of one queue and one
 * database.
 */
const DISPATCHES_PER_INVOCATION = 3;
/**
 * How long a batch occupies its queue consumer. Most dispatches end within this time, so `max_concurrency` bounds
 * them; one that waits for a slow endpoint continues in the background, so that its queue goes on.
 */
const CONSUMER_HELD_MS = 2_000;
/** The delay before a failed dispatch is repeated. Its leases have ended by then. */
const FAILED_DISPATCH_WAIT_MS = LEASE_MS;

/**
 * Consumes the delivery queues: sends the due deliveries of the subscriptions that the messages name. Messages are
 * only hints. The deliveries themselves are in the database, so a lost or repeated message does no harm.
 *
 * @param sender prepares deliveries, and makes attempts; the simulation and tests replace it.
 */
export async function consume(
  messages: readonly Message[],
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  sender: Sender = createSender(env),
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
  const batches = batchMessages(valid);
  const served = batches.slice(0, DISPATCHES_PER_INVOCATION);
  // The rest is retried in another invocation, which has connections of its own.
  for (const left of batches.slice(DISPATCHES_PER_INVOCATION))
    for (const message of left.messages) message.retry();
  const connections = Math.floor(CONNECTIONS_MAX / Math.max(1, served.length));
  await Promise.all(served.map((batch) => consumeBatch(batch, connections, env, ctx, sender)));
}

/** Messages of one queue whose subscriptions are in one database. */
interface MessageBatch {
  queue: QueueName;
  /** The name of the database. */
  database: string;
  messages: Message<WakeUpMessage>[];
}

function batchMessages(messages: readonly Message<WakeUpMessage>[]): MessageBatch[] {
  const batches = new Map<string, MessageBatch>();
  for (const message of messages) {
    const { queue, database = DIRECTORY } = message.body;
    const key = `${queue} ${database}`;
    const batch = batches.get(key) ?? { queue, database, messages: [] };
    batch.messages.push(message);
    batches.set(key, batch);
  }
  return [...batches.values()];
}

async function consumeBatch(
  { queue, database, messages }: MessageBatch,
  connections: number,
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  sender: Sender,
): Promise<void> {
  const arrived = new Map<string, number>();
  for (const { body } of messages) {
    const { subscriptionId, wakeAt = 0 } = body;
    // The latest counts: a delayed message for an earlier time counts as arrived, too (step 3 of messages.ts).
    arrived.set(subscriptionId, Math.max(arrived.get(subscriptionId) ?? 0, wakeAt));
  }
  const work = dispatchAndWake(database, arrived, queue, connections, env, sender).catch(
    async (error: unknown) => {
      logError("dispatch_failed", error, { database, subscriptions: arrived.size });
      const wakeAt = Date.now() + FAILED_DISPATCH_WAIT_MS;
      const again = [...arrived.keys()].map((subscriptionId) => ({
        subscriptionId,
        queue,
        wakeAt,
      }));
      await sendWakeUps(env, database, again);
    },
  );
  await withTimeout(CONSUMER_HELD_MS, work, () => {});
  for (const message of messages) message.ack();
  ctx.waitUntil(work);
}

/**
 * Dispatches, and sends each subscription's next wake-up message as soon as its session has ended.
 *
 * @param arrived the subscriptions, each with the `wakeAt` of the message that has arrived for it; 0 if it had none.
 */
async function dispatchAndWake(
  database: string,
  arrived: ReadonlyMap<string, number>,
  queue: QueueName,
  connections: number,
  env: Env,
  sender: Sender,
): Promise<void> {
  const db = openDatabase(bindingOf(env, database));
  const startedAt = Date.now();
  const count = { delivered: 0, failed: 0 };
  const waking: Promise<boolean>[] = [];
  const ports: DispatchPorts = {
    now: Date.now,
    random: Math.random,
    prepare: sender.prepare,
    async attempt(...request) {
      const outcome = await sender.attempt(...request);
      count[succeeded(outcome) ? "delivered" : "failed"]++;
      return outcome;
    },
    finished(_, wakeUp) {
      if (wakeUp) waking.push(sendWakeUps(env, database, [wakeUp]));
    },
  };
  try {
    await dispatch(db, arrived, ports, { queue, connections });
  } finally {
    const durationMs = Date.now() - startedAt;
    const subscriptions = arrived.size;
    if (count.delivered + count.failed > 0)
      log("dispatched", { queue, subscriptions, ...count, durationMs });
    await Promise.all(waking);
  }
}
