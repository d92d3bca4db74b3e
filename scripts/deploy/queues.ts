import { z } from "@hono/zod-openapi";
import type { Cloudflare } from "../shared/cloudflare.ts";
import type { FoundQueue } from "../shared/queues.ts";
import { print } from "../shared/terminal.ts";

/** How long a queue keeps a message, at most: while its consumer is paused. */
const KEPT_SECONDS = 14 * 24 * 60 * 60;

/** Whether a queue exists, but in another jurisdiction. */
export function isMisplaced(queue: FoundQueue, jurisdiction: string): boolean {
  return queue.id !== null && queue.jurisdiction !== jurisdiction;
}

/** @throws Error if a queue is in another jurisdiction: it may hold messages. */
export function expectPlaced(queues: FoundQueue[], jurisdiction: string): void {
  const misplaced = queues.find((queue) => isMisplaced(queue, jurisdiction));
  if (misplaced)
    throw new Error(
      `The queue ${misplaced.name} is stored ${placeOf(misplaced.jurisdiction)}, not ${placeOf(jurisdiction)}, and cannot be moved: give it a new name in wrangler.toml. Nothing was deployed.`,
    );
}

/** A Worker, in one of the fields in which Cloudflare names it, or something else, such as a bucket. */
const User = z.object({
  type: z.string(),
  script: z.string().optional(),
  script_name: z.string().optional(),
  service: z.string().optional(),
});
const Users = z.object({
  producers: z.array(User).nullish(),
  consumers: z.array(User).nullish(),
});

/**
 * @param queues those that are to be replaced.
 * @param worker the name of the Worker.
 * @throws Error if anything else sends to one, or consumes it: it belongs to another application.
 */
export async function expectUnshared(
  { call }: Cloudflare,
  queues: FoundQueue[],
  worker: string | undefined,
): Promise<void> {
  for (const { name, id, jurisdiction } of queues) {
    const { producers, consumers } = await call(Users, "GET", `/queues/${id}`);
    for (const user of [...(producers ?? []), ...(consumers ?? [])]) {
      const script = user.script ?? user.script_name ?? user.service;
      if (script === worker) continue;
      throw new Error(
        `The queue ${name} is stored ${placeOf(jurisdiction)}, and used by ${script ?? `a ${user.type}`}: give it a new name in wrangler.toml. Nothing was deployed.`,
      );
    }
  }
}

/** A jurisdiction in words. */
export function placeOf(jurisdiction: string): string {
  return jurisdiction === "" ? "in no jurisdiction" : `in the jurisdiction ${jurisdiction}`;
}

/**
 * Creates the missing queues, and lets each keep messages for 14 days. A queue in another jurisdiction is
 * deleted first, so the caller must know that it holds no messages, and that nothing else uses it.
 *
 * @throws Error if one of them cannot be created.
 */
export async function makeQueues(
  { call }: Cloudflare,
  queues: FoundQueue[],
  jurisdiction: string,
): Promise<void> {
  const settings = { message_retention_period: KEPT_SECONDS };
  for (const queue of queues) {
    const { name, id } = queue;
    const replaces = isMisplaced(queue, jurisdiction);
    const update = { queue_name: name, settings };
    const make = { ...update, ...(jurisdiction && { jurisdiction }) };
    try {
      if (replaces) {
        print(
          `Replacing the queue ${name}, which is stored ${placeOf(queue.jurisdiction)}. It holds nothing, because nothing was recorded yet.`,
        );
        await call(z.unknown(), "DELETE", `/queues/${id}`);
      }
      if (id === null) print(`Creating the queue ${name}.`);
      if (id === null || replaces) await call(z.unknown(), "POST", "/queues", make);
      // A queue whose deliveries are paused is left alone, unless it must be changed.
      else if (queue.keptSeconds !== KEPT_SECONDS)
        await call(z.unknown(), "PATCH", `/queues/${id}`, update);
    } catch (error) {
      const { message } = error as Error;
      const advice = /retention/i.test(message)
        ? " To keep messages for 14 days takes the paid plan."
        : "";
      throw new Error(
        `The queue ${name} could not be set up: nothing was deployed.${advice}\n${message}`,
      );
    }
  }
}
