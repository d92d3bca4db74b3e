import { logError } from "../log.ts";
import type { Wake } from "../model/deliveries.ts";

/** What a queue carries: a hint to look into the database for this subscription, and no data. */
export interface WakeMessage {
  subscriptionId: string;
}

const LONGEST_DELAY_SECONDS = 86_400;
const MESSAGES_AT_ONCE = 100;

/**
 * Wakes the consumer for each subscription: healthy ones in one lane, failing ones in the other, so
 * that a slow subscriber holds nobody up. A hint that a queue refuses is not lost work: the sweep
 * finds what is overdue.
 *
 * @returns whether the queues took every hint.
 */
export async function wake(env: Env, wakes: Wake[], delaySeconds = 0): Promise<boolean> {
  const lanes = [
    { queue: env.DELIVERIES, ids: idsOf(wakes, false) },
    { queue: env.REDELIVERIES, ids: idsOf(wakes, true) },
  ];
  const sent = await Promise.all(
    lanes.flatMap(({ queue, ids }) =>
      chunks(ids).map((chunk) => send(queue, chunk, Math.min(delaySeconds, LONGEST_DELAY_SECONDS))),
    ),
  );
  return sent.every(Boolean);
}

function idsOf(wakes: Wake[], failing: boolean): string[] {
  const lane = wakes.filter((wake) => wake.failing === failing);
  return [...new Set(lane.map(({ subscriptionId }) => subscriptionId))];
}

function chunks(ids: string[]): string[][] {
  const count = Math.ceil(ids.length / MESSAGES_AT_ONCE);
  return Array.from({ length: count }, (_, i) =>
    ids.slice(i * MESSAGES_AT_ONCE, (i + 1) * MESSAGES_AT_ONCE),
  );
}

async function send(queue: Queue, ids: string[], delaySeconds: number): Promise<boolean> {
  try {
    await queue.sendBatch(
      ids.map((subscriptionId) => ({
        body: { subscriptionId } satisfies WakeMessage,
        delaySeconds,
      })),
    );
    return true;
  } catch (error) {
    logError("wake_refused", error, { messages: ids.length });
    return false;
  }
}
