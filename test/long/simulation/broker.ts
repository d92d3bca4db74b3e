import { Isolate, type World } from "./world.ts";

interface Held {
  id: string;
  body: unknown;
  attempts: number;
}

/** What a queue passes messages to: the Worker's queue consumer, in an isolate of its own. */
export type Consumer = (messages: Message<never>[], isolate: Isolate) => Promise<void>;

/** Maximum messages of a batch: `max_batch_size` in wrangler.toml. */
const BATCH_MAX = 6;
/** The runtime gives what continues in the background thirty seconds. */
const BACKGROUND_MS = 30_000;

/**
 * A queue that loses, repeats, delays and reorders messages, and sometimes refuses them.
 *
 * @param concurrency maximum consumers at once.
 */
export function openBroker(world: World, name: string, concurrency: number, consumer: Consumer) {
  const { chance } = world;
  const waiting: Held[] = [];
  let running = 0;
  let sent = 0;
  /** Messages that are underway, or whose consumers may still run. */
  let underway = 0;
  let invocations = 0;

  /** The binding of an isolate. */
  function producer(isolate: Isolate): Queue {
    return {
      sendBatch: (messages: MessageSendRequest<unknown>[]) =>
        isolate.request(async () => {
          await isolate.step();
          await world.sleep(chance.between(1, 20));
          if (world.isDown("queues")) throw new Error("Queue sendBatch failed: overloaded");
          if (chance.happens(world.odds.queueRefuses)) {
            // Some of them may have been accepted.
            for (const message of messages) if (chance.happens(0.5)) take(message);
            throw new Error("Queue sendBatch failed: overloaded");
          }
          for (const message of messages) take(message);
          await isolate.step();
        }),
    } as unknown as Queue;
  }

  function take({ body, delaySeconds = 0 }: MessageSendRequest<unknown>): void {
    const { odds } = world;
    if (chance.happens(odds.messageIsLost)) {
      world.note(`${name} loses a message`);
      return;
    }
    for (let n = chance.happens(odds.messageIsDoubled) ? chance.between(2, 20) : 1; n > 0; n--) {
      const lateMs = chance.happens(odds.messageIsLate) ? chance.between(0, odds.lateMs) : 0;
      enqueue({ id: `message-${sent++}`, body, attempts: 0 }, delaySeconds * 1000 + lateMs);
    }
  }

  function enqueue(held: Held, delayMs: number): void {
    underway++;
    world.after(delayMs, () => {
      waiting.splice(chance.between(0, waiting.length), 0, held);
      passOn();
    });
  }

  function passOn(): void {
    if (world.isDown("queues")) {
      world.after(world.downUntil.queues - world.now, passOn);
      return;
    }
    while (waiting.length > 0 && running < concurrency) consume();
  }

  function consume(): void {
    const batch = waiting.splice(0, chance.between(1, BATCH_MAX));
    const acknowledged = new Set<Held>();
    let isOpen = true;
    running++;
    invocations++;
    // A batch whose consumer dies comes back after a while or, sometimes, never.
    const isolate = new Isolate(
      world,
      `${name} consumer`,
      () => world.odds.consumerDies,
      () => close(chance.happens(world.odds.messagesVanish) ? null : chance.between(1_000, 60_000)),
    );
    const messages = batch.map((held) => ({
      id: held.id,
      body: held.body,
      attempts: ++held.attempts,
      ack: () => settle(held, null),
      retry: ({ delaySeconds = 0 } = {}) => settle(held, delaySeconds * 1000),
    })) as unknown as Message<never>[];
    isolate
      .run(() => consumer(messages, isolate))
      .then(
        () => close(null),
        (error) => {
          world.note(`${name} consumer throws ${error}`);
          close(chance.between(0, 10_000));
        },
      )
      .then(() =>
        world.after(BACKGROUND_MS, () => {
          isolate.kill();
          underway -= batch.length;
        }),
      );

    function settle(held: Held, retryAfterMs: number | null): void {
      if (acknowledged.has(held)) return;
      acknowledged.add(held);
      if (retryAfterMs !== null) enqueue(held, retryAfterMs);
    }

    function close(retryAfterMs: number | null): void {
      if (!isOpen) return;
      isOpen = false;
      running--;
      for (const held of batch) settle(held, retryAfterMs);
      passOn();
    }
  }

  return {
    producer,
    /** Whether no message is underway, and no consumer of an earlier one may still run. */
    isIdle: () => underway === 0,
    /** How often it has passed on a batch. */
    invocations: () => invocations,
  };
}
