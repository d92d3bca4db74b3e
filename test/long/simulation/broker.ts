import { Isolate, type World } from "./world.ts";

interface Held {
  id: string;
  body: unknown;
  attempts: number;
}

/** What a queue passes messages to: the Worker's queue consumer, in its own isolate. */
export type Consumer = (messages: Message<never>[], isolate: Isolate) => Promise<void>;

/**
 * A queue that loses, duplicates, delays and reorders messages, and sometimes refuses them.
 *
 * @param concurrency maximum concurrent consumers.
 */
export function openBroker(world: World, name: string, concurrency: number, consumer: Consumer) {
  const { chance } = world;
  const waiting: Held[] = [];
  let running = 0;
  /** Consumers that are busy with nothing but fast subscriptions. */
  let busyWithFast = 0;
  /** When all consumers were. */
  const busy: { from: number; to: number }[] = [];
  let sent = 0;
  /** Messages that are underway, or whose consumers may still run. */
  let underway = 0;

  /** The binding of an isolate. */
  function producer(isolate: Isolate): Queue {
    return {
      sendBatch: (messages: MessageSendRequest<unknown>[]) =>
        isolate.request(async () => {
          await isolate.step();
          await world.sleep(chance.between(1, 20));
          if (world.isDown("queues")) throw new Error("Queue sendBatch failed: overloaded");
          if (world.faults && chance.happens(world.odds.queueRefuses)) {
            // Some of them may have been accepted.
            for (const message of messages) if (chance.happens(0.5)) take(message);
            throw new Error("Queue sendBatch failed: overloaded");
          }
          for (const message of messages) take(message);
          await isolate.step();
        }),
    } as unknown as Queue;
  }

  /** For how long, between two times, all consumers were busy with fast subscriptions. */
  function saturatedMs(from: number, to: number): number {
    return busy.reduce(
      (sum, one) => sum + Math.max(0, Math.min(one.to, to) - Math.max(one.from, from)),
      0,
    );
  }

  function countFast(change: 1 | -1): void {
    const { now } = world;
    const last = busy.at(-1);
    if (busyWithFast === concurrency && last) last.to = now;
    busyWithFast += change;
    if (busyWithFast === concurrency) busy.push({ from: now, to: Number.POSITIVE_INFINITY });
  }

  function take({ body, delaySeconds = 0 }: MessageSendRequest<unknown>): void {
    if (world.faults && chance.happens(world.odds.messageIsLost)) {
      world.note(`${name} loses a message`);
      return;
    }
    const copies =
      world.faults && chance.happens(world.odds.messageIsDoubled) ? chance.between(2, 20) : 1;
    for (let i = 0; i < copies; i++) {
      const late =
        world.faults && chance.happens(world.odds.messageIsLate)
          ? chance.between(0, world.odds.lateMs)
          : 0;
      const held = { id: `message-${sent++}`, body, attempts: 0 };
      enqueue(held, delaySeconds * 1000 + late);
    }
  }

  function enqueue(held: Held, delayMs: number): void {
    underway++;
    world.after(delayMs, () => {
      waiting.splice(chance.between(0, waiting.length), 0, held);
      dispatch();
    });
  }

  function dispatch(): void {
    if (world.isDown("queues")) {
      world.after(world.downUntil.queues - world.now, dispatch);
      return;
    }
    while (waiting.length > 0 && running < concurrency) {
      const batch = waiting.splice(0, chance.between(1, chance.pick([10, 100])));
      running++;
      const isFast = batch.every(({ body }) => (body as { queue: string }).queue === "fast");
      if (isFast) countFast(1);
      const ended = new Set<Held>();
      let open = true;
      const end = (held: Held, retryAfterMs: number | null) => {
        if (ended.has(held)) return;
        ended.add(held);
        if (retryAfterMs !== null) enqueue(held, retryAfterMs);
      };
      const close = (retryAfterMs: number | null) => {
        if (!open) return;
        open = false;
        running--;
        if (isFast) countFast(-1);
        for (const held of batch) end(held, retryAfterMs);
        dispatch();
      };
      // A batch whose consumer dies comes back after a while or, rarely, never. One that was handed
      // off is gone.
      const isolate = new Isolate(world, `${name} consumer`, world.odds.consumerCrashes, () =>
        close(chance.happens(world.odds.messagesVanish) ? null : chance.between(1_000, 60_000)),
      );
      world.invocations.add(isolate);
      const messages = batch.map((held) => ({
        id: held.id,
        body: held.body,
        attempts: ++held.attempts,
        ack: () => end(held, null),
        retry: ({ delaySeconds = 0 } = {}) => end(held, delaySeconds * 1000),
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
        // The runtime gives what continues in the background thirty seconds.
        .then(() =>
          world.after(30_000, () => {
            isolate.kill();
            underway -= batch.length;
          }),
        );
    }
  }

  return {
    producer,
    saturatedMs,
    /** Whether no message is underway, and no consumer of an earlier one may still run. */
    isIdle: () => underway === 0,
  };
}
