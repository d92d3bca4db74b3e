import { isId } from "../../contract/ids.ts";
import { DIRECTORY, isBound } from "../../db/databases.ts";
import { logError } from "../../log.ts";
import type { Lane } from "../pace.ts";
import type { Wake } from "./due.ts";

/**
 * A message of the delivery queues: a hint to look in the database for this subscription's deliveries.
 * It names its lane because a deployment may rename its queues.
 */
export interface WakeMessage {
  subscriptionId: string;
  lane: Lane;
  /** The name of the subscription's database; absent means the directory's. */
  database?: string;
}

/**
 * Whether a queue message is exactly what `wake` sends, for a database that is bound. Anything else is
 * left to the ingest queue: a record that resembles a wake must not be acknowledged as one.
 */
export function isWake(message: Message, env: Env): message is Message<WakeMessage> {
  const { body } = message;
  if (typeof body !== "object" || body === null) return false;
  const fields: Partial<Record<keyof WakeMessage, unknown>> = body;
  const { subscriptionId, lane, database = DIRECTORY, ...others } = fields;
  return (
    typeof subscriptionId === "string" &&
    isId("webhook", subscriptionId) &&
    (lane === "fast" || lane === "slow") &&
    typeof database === "string" &&
    isBound(env, database) &&
    Object.keys(others).length === 0
  );
}

const LONGEST_DELAY_SECONDS = 86_400;
const MESSAGES_AT_ONCE = 100;

/**
 * Wakes the consumer for each subscription, in its lane. If a queue refuses a message, nothing is
 * lost: the sweep finds what is overdue.
 *
 * @param database the name of the subscriptions' database.
 * @returns whether the queues accepted every message.
 */
export async function wake(
  env: Env,
  database: string,
  wakes: Wake[],
  delaySeconds = 0,
): Promise<boolean> {
  const queues = { fast: env.DELIVERIES, slow: env.REDELIVERIES };
  const delay = Math.min(delaySeconds, LONGEST_DELAY_SECONDS);
  const lanes = Map.groupBy(wakes, ({ lane }) => lane);
  const sent = await Promise.all(
    [...lanes].flatMap(([lane, hints]) => {
      const ids = [...new Set(hints.map(({ subscriptionId }) => subscriptionId))];
      const elsewhere = database === DIRECTORY ? {} : { database };
      const hintsOf = (chunk: string[]): WakeMessage[] =>
        chunk.map((subscriptionId) => ({ subscriptionId, lane, ...elsewhere }));
      return chunks(ids).map((chunk) => send(queues[lane], hintsOf(chunk), delay));
    }),
  );
  return sent.every(Boolean);
}

function chunks(ids: string[]): string[][] {
  const count = Math.ceil(ids.length / MESSAGES_AT_ONCE);
  return Array.from({ length: count }, (_, i) =>
    ids.slice(i * MESSAGES_AT_ONCE, (i + 1) * MESSAGES_AT_ONCE),
  );
}

async function send(queue: Queue, hints: WakeMessage[], delaySeconds: number): Promise<boolean> {
  try {
    await queue.sendBatch(hints.map((body) => ({ body, delaySeconds })));
    return true;
  } catch (error) {
    logError("wake_refused", error, { messages: hints.length });
    return false;
  }
}
