import { Isolate, type World } from "./world.ts";

interface Held {
  id: string;
  body: unknown;
  attempts: number;
}

/** What a queue passes messages to: the Worker's queue consumer, in its own isolate. */
export type Consumer = (messages: Message<never>[], isolate: Isolate) => Promise<void>;

/** A queue that loses, duplicates, delays and reorders messages, and sometimes refuses them. */
export class Broker {
  #waiting: Held[] = [];
  #running = 0;
  /** Consumers that are busy with nothing but fast subscriptions. */
  #busyWithFast = 0;
  /** When all consumers were. */
  readonly #saturated: { from: number; to: number }[] = [];
  #sent = 0;

  readonly world: World;
  readonly name: string;
  readonly consumer: Consumer;
  readonly concurrency: number;

  /** @param concurrency maximum concurrent consumers. */
  constructor(world: World, name: string, concurrency: number, consumer: Consumer) {
    this.concurrency = concurrency;
    this.world = world;
    this.name = name;
    this.consumer = consumer;
  }

  /** The binding of an isolate. */
  producer(isolate: Isolate): Queue {
    return {
      sendBatch: (messages: MessageSendRequest<unknown>[]) =>
        isolate.request(async () => {
          const { world } = this;
          await isolate.step();
          await world.sleep(world.chance.between(1, 20));
          if (world.faults && world.chance.happens(0.05)) {
            // Some of them may have been accepted.
            for (const message of messages) if (world.chance.happens(0.5)) this.#take(message);
            throw new Error("Queue sendBatch failed: overloaded");
          }
          for (const message of messages) this.#take(message);
          await isolate.step();
        }),
    } as unknown as Queue;
  }

  /** For how long, between two times, all consumers were busy with fast subscriptions. */
  saturatedMs(from: number, to: number): number {
    return this.#saturated.reduce(
      (sum, busy) => sum + Math.max(0, Math.min(busy.to, to) - Math.max(busy.from, from)),
      0,
    );
  }

  #countFast(change: 1 | -1): void {
    const { now } = this.world;
    const last = this.#saturated.at(-1);
    if (this.#busyWithFast === this.concurrency && last) last.to = now;
    this.#busyWithFast += change;
    if (this.#busyWithFast === this.concurrency)
      this.#saturated.push({ from: now, to: Number.POSITIVE_INFINITY });
  }

  #take({ body, delaySeconds = 0 }: MessageSendRequest<unknown>): void {
    const { world } = this;
    if (world.faults && world.chance.happens(0.03)) {
      world.note(`${this.name} loses a message`);
      return;
    }
    const copies = world.faults && world.chance.happens(0.03) ? world.chance.between(2, 20) : 1;
    for (let i = 0; i < copies; i++) {
      const late = world.faults && world.chance.happens(0.1) ? world.chance.between(0, 300_000) : 0;
      const held = { id: `message-${this.#sent++}`, body, attempts: 0 };
      this.#enqueue(held, delaySeconds * 1000 + late);
    }
  }

  #enqueue(held: Held, delayMs: number): void {
    this.world.after(delayMs, () => {
      this.#waiting.splice(this.world.chance.between(0, this.#waiting.length), 0, held);
      this.#dispatch();
    });
  }

  #dispatch(): void {
    const { world } = this;
    while (this.#waiting.length > 0 && this.#running < this.concurrency) {
      const batch = this.#waiting.splice(0, world.chance.between(1, 10));
      this.#running++;
      const isFast = batch.every(({ body }) => (body as { lane: string }).lane === "fast");
      if (isFast) this.#countFast(1);
      const ended = new Set<Held>();
      let open = true;
      const end = (held: Held, retryAfterMs: number | null) => {
        if (ended.has(held)) return;
        ended.add(held);
        if (retryAfterMs !== null) this.#enqueue(held, retryAfterMs);
      };
      const close = (retryAfterMs: number | null) => {
        if (!open) return;
        open = false;
        this.#running--;
        if (isFast) this.#countFast(-1);
        for (const held of batch) end(held, retryAfterMs);
        this.#dispatch();
      };
      // A batch whose consumer dies comes back after a while or, rarely, never. One that was handed
      // off is gone.
      const isolate = new Isolate(world, `${this.name} consumer`, 0.01, () =>
        close(world.chance.happens(0.2) ? null : world.chance.between(1_000, 60_000)),
      );
      const messages = batch.map((held) => ({
        id: held.id,
        body: held.body,
        attempts: ++held.attempts,
        ack: () => end(held, null),
        retry: ({ delaySeconds = 0 } = {}) => end(held, delaySeconds * 1000),
      })) as unknown as Message<never>[];
      isolate
        .run(() => this.consumer(messages, isolate))
        .then(
          () => close(null),
          (error) => {
            world.note(`${this.name} consumer throws ${error}`);
            close(world.chance.between(0, 10_000));
          },
        );
    }
  }
}
