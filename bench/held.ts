import type { Runtime } from "../scripts/shared/runtime.ts";
import type { Held, Returned } from "./control.ts";
import { call, sleep } from "./setting.ts";
import type { Meters } from "./worker.ts";

const BATCH_MAX = 100;
const MINUTE_MS = 60_000;
const TICK_MS = 20;

/**
 * The queues and clock of a metered Worker, controlled by a bench: nothing is delivered until
 * `settle` is called, and then waits of hours pass at once. The runtime, the database and the
 * receivers are real.
 */
export class HeldQueues {
  readonly runtime: Runtime;
  #messages: Held[] = [];
  #offsetMs = 0;

  private constructor(runtime: Runtime) {
    this.runtime = runtime;
  }

  /** Takes control of the queues. */
  static async take(runtime: Runtime): Promise<HeldQueues> {
    await call(runtime, "/bench/control/hold?on=true");
    return new HeldQueues(runtime);
  }

  /** Releases the queues and the clock. */
  async release(): Promise<void> {
    await call(this.runtime, "/bench/control/hold?on=false");
    await setClock(this.runtime, 0);
  }

  /** Unix milliseconds, by the Worker's clock. */
  now(): number {
    return Date.now() + this.#offsetMs;
  }

  /** What the Worker has sent since; nobody else gets it from then on. */
  async collect(): Promise<Held[]> {
    const sent = await ask<Held[]>(this.runtime, "/bench/control/held");
    this.#messages.push(...sent);
    return this.#messages;
  }

  /** Runs one consumer on the messages; returned messages wait until they are due again. */
  async consume(queue: string, bodies: unknown[]): Promise<void> {
    const returned = await ask<Returned>(
      this.runtime,
      `/bench/control/consume?queue=${queue}`,
      bodies,
    );
    this.#messages.push(...returned);
  }

  /**
   * Consumes one batch after another, and advances time to the next message if none is due, until
   * `done`. The scheduled job runs after each such step: in between it would find nothing to do.
   *
   * @throws Error if it is not done within `limitMs` of the Worker's time.
   */
  async settle(done: () => boolean | Promise<boolean>, limitMs = 10 * MINUTE_MS): Promise<void> {
    const deadline = this.now() + limitMs;
    for (;;) {
      await this.collect();
      if (await done()) return;
      if (this.now() > deadline) throw new Error(`not settled within ${limitMs} ms`);
      const first = this.#messages.find(({ dueAt }) => dueAt <= this.now());
      if (!first) await this.#leap();
      else await this.consume(first.queue, this.#takeDue(first.queue));
    }
  }

  /**
   * Runs `consumers` concurrently until `done`; each takes its share of the due messages, as if the
   * queue had distributed batches to all of them.
   */
  async drain(consumers: number, done: () => boolean | Promise<boolean>): Promise<void> {
    let isDone = false;
    const look = async () => {
      while (!isDone) {
        await this.collect();
        isDone = await done();
        await sleep(TICK_MS);
      }
    };
    const run = async () => {
      while (!isDone) {
        const queue = this.#messages.find(({ dueAt }) => dueAt <= this.now())?.queue;
        if (queue === undefined) await sleep(TICK_MS);
        else await this.consume(queue, this.#takeDue(queue, Math.ceil(BATCH_MAX / consumers)));
      }
    };
    await Promise.all([look(), ...Array.from({ length: consumers }, run)]);
  }

  #takeDue(queue: string, limit = BATCH_MAX): unknown[] {
    const now = this.now();
    const isDue = (message: Held) => message.queue === queue && message.dueAt <= now;
    const due = this.#messages.filter(isDue).slice(0, limit);
    this.#messages = this.#messages.filter((message) => !due.includes(message));
    return due.map(({ body }) => body);
  }

  async #leap(): Promise<void> {
    // With no messages left, the sweep is the next thing to happen.
    const next = Math.min(this.now() + 24 * 60 * MINUTE_MS, ...this.#messages.map((m) => m.dueAt));
    const at = this.#messages.length > 0 ? next : this.now() + MINUTE_MS;
    this.#offsetMs += Math.max(0, at - this.now());
    await setClock(this.runtime, this.#offsetMs);
    await this.runtime.scheduled(this.now());
  }
}

/** Moves the clock of a metered Worker, in milliseconds from the true time. */
export async function setClock(runtime: Runtime, offsetMs: number): Promise<void> {
  await call(runtime, `/bench/control/clock?offset=${offsetMs}`);
}

/** What the bindings were used for since the last reset. */
export function readMeters(runtime: Runtime): Promise<Meters> {
  return ask<Meters>(runtime, "/bench/meters");
}

/** Sets the meters to zero. */
export async function resetMeters(runtime: Runtime): Promise<void> {
  await call(runtime, "/bench/reset");
}

async function ask<T>(runtime: Runtime, path: string, body?: unknown): Promise<T> {
  const posted = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  return (await (await call(runtime, path, posted)).json()) as T;
}
