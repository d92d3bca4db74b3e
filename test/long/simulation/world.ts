import { AsyncLocalStorage, AsyncResource } from "node:async_hooks";
import { createCipheriv, createDecipheriv, createHash, createHmac } from "node:crypto";
import { Chance } from "../../../scripts/shared/chance.ts";
import { STATEMENTS_MAX } from "../../../src/db/budget.ts";
import { Connections } from "../../support/connections.ts";

/*
 * A simulated world runs the delivery code against real SQLite, in one process and without waiting. Its clock, timers,
 * randomness and network come from a seed, so the same seed gives the same history. `simulate` (simulate.ts) is the life
 * of a world. The other files, in the order in which a reader meets them:
 *
 * - store.ts (D1) and broker.ts (the queues) are the platform, which fails, loses and repeats.
 * - endpoints.ts are the customers' servers, and deployment.ts is the Worker with its bindings.
 * - work.ts is what the platform and the customers do in some hours; scenarios.ts are single days, as data.
 * - invariants.ts is what must hold; model.ts says how fast.
 */

const realImmediate = setImmediate;

/** The isolate whose code runs. */
const current = new AsyncLocalStorage<Isolate>();

/** How much fails, as probabilities and times in milliseconds. */
const USUAL = {
  /** A request to D1 fails before its commit. */
  d1Fails: 0.02,
  /** It is committed, and its reply is lost. */
  d1LosesReply: 0.02,
  /** A request to D1 takes up to half a minute... */
  d1IsSlow: 0,
  /** ...and one that moves a workspace up to three, while others go on with that. */
  moveHangs: 0.01,
  /** A consumer dies at a step... */
  consumerDies: 0.01,
  /** ...or a call of the platform, or the scheduled job. */
  callDies: 0.02,
  mailIsRefused: 0.3,
  /** The messages of a dead consumer never come back. */
  messagesVanish: 0.2,
  queueRefuses: 0.05,
  messageIsLost: 0.03,
  messageIsDoubled: 0.03,
  messageIsLate: 0.1,
  /** How late it is at most. */
  lateMs: 300_000,
  /** How far the clocks jump at most. */
  clockJumpMs: 600_000,
};
export type Odds = typeof USUAL;

export const NO_FAULTS = Object.fromEntries(Object.keys(USUAL).map((name) => [name, 0])) as Odds;

/** A violated invariant, which ends a world. */
export class Violation extends Error {}

export class World {
  /** The true time, in Unix milliseconds. */
  now = Date.UTC(2026, 0, 5);
  /** How far the machines' clocks are off, in milliseconds, and since when. */
  skewMs = 0;
  skewedAt = 0;
  /** How far the clock of a single isolate may be off from that, in either direction. */
  isolateSkewMs: number;
  /** How many isolates there have been. */
  isolates = 0;
  /** What fails now. */
  odds: Readonly<Odds>;
  /** How far the clocks jump at most, at any time of this world. */
  readonly clockJumpMaxMs: number;
  /** Until when D1, the queues and the cron do not work, in true time. */
  readonly downUntil = { d1: 0, queues: 0, cron: 0 };
  /** Invocations that a deployment ends. */
  readonly invocations = new Set<Isolate>();
  readonly history: string[] = [];
  readonly chance: Chance;
  /** Answers the requests of the code under test. */
  onFetch: (isolate: Isolate, url: string, init: RequestInit) => Promise<Response>;
  /** Sorted, the next one last. */
  readonly #timers: Timer[] = [];
  #order = 0;
  #failure: unknown = null;

  /** Whether more fails and changes than usual. */
  readonly isHarsh: boolean;

  constructor(seed: number, isHarsh = false) {
    this.isHarsh = isHarsh;
    this.chance = new Chance(seed);
    this.isolateSkewMs = this.chance.pick([0, 20, 1_000]);
    this.odds = isHarsh ? this.#pickOdds() : USUAL;
    this.clockJumpMaxMs = this.odds.clockJumpMs;
    this.onFetch = () => Promise.reject(new Error("this world has no network"));
  }

  #pickOdds(): Odds {
    const { chance } = this;
    return {
      ...USUAL,
      d1Fails: chance.pick([0.02, 0.05, 0.1]),
      d1LosesReply: chance.pick([0.02, 0.05, 0.1]),
      d1IsSlow: 0.02,
      consumerDies: chance.pick([0.01, 0.03, 0.08]),
      messagesVanish: chance.pick([0, 0.2, 1]),
      queueRefuses: chance.pick([0, 0.05, 0.4]),
      messageIsLost: chance.pick([0, 0.03, 0.3]),
      // With more, a dispatch that fails would leave more messages than it consumes.
      messageIsDoubled: chance.pick([0.03, 0.05]),
      messageIsLate: chance.pick([0.1, 0.5]),
      lateMs: chance.pick([300_000, 3 * 3_600_000]),
      clockJumpMs: chance.pick([600_000, 3_600_000]),
    };
  }

  /** From now on, nothing fails but the endpoints. */
  endFaults(): void {
    this.odds = NO_FAULTS;
    Object.assign(this.downUntil, { d1: 0, queues: 0, cron: 0 });
    if (this.skewMs !== 0) this.skew(0);
  }

  /** Sets the machines' clocks. */
  skew(ms: number): void {
    this.skewMs = ms;
    this.skewedAt = this.now;
    this.note(`clocks are off by ${ms} ms`);
  }

  isDown(part: keyof World["downUntil"]): boolean {
    return this.now < this.downUntil[part];
  }

  /** A deployment, or a machine that is lost: all invocations end at once. */
  endInvocations(): void {
    this.note(`${this.invocations.size} invocations end`);
    for (const isolate of this.invocations) isolate.kill();
  }

  note(line: string): void {
    this.history.push(`${new Date(this.now).toISOString()} ${line}`);
  }

  /** Calls `run` after `ms` of true time. */
  after(ms: number, run: () => void): Timer {
    const timer = { at: this.now + Math.max(0, ms), order: this.#order++, run };
    let [low, high] = [0, this.#timers.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      // A later timer for the same time comes before it in the list, because it runs after it.
      if ((this.#timers[middle] as Timer).at > timer.at) low = middle + 1;
      else high = middle;
    }
    this.#timers.splice(low, 0, { ...timer, run: AsyncResource.bind(run) });
    return timer;
  }

  #cancel(timer: Timer | undefined): void {
    const place = this.#timers.findIndex(({ order }) => order === timer?.order);
    if (place >= 0) this.#timers.splice(place, 1);
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  /** Ends this world with an error, from anywhere: `run` throws it. */
  fail(error: unknown): void {
    this.#failure ??= error;
  }

  /** Runs a check from anywhere; what it throws ends this world. */
  guard(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.fail(error);
    }
  }

  /** Lets time pass, from timer to timer, until `done` or until nothing is left to happen. */
  async run(done: () => boolean): Promise<void> {
    for (;;) {
      await new Promise((resolve) => realImmediate(resolve));
      if (this.#failure !== null) throw this.#failure;
      if (done()) return;
      const timer = this.#timers.pop();
      if (!timer) return;
      this.now = Math.max(this.now, timer.at);
      timer.run();
    }
  }

  /**
   * Gives the code under test its clock, timers, randomness and network from this world, and from nowhere else.
   *
   * @returns a function that restores those of the process.
   */
  install(): () => void {
    const { setTimeout, clearTimeout, console, fetch } = globalThis;
    const { now } = Date;
    const { random } = Math;
    const steady = performance.now;
    const { randomUUID, getRandomValues } = crypto;
    const { digest, importKey, encrypt, decrypt, sign } = crypto.subtle;
    performance.now = () => this.now;
    Date.now = () => this.now + this.skewMs + (current.getStore()?.skewMs ?? 0);
    Math.random = () => this.chance.number();
    Object.assign(globalThis, {
      setTimeout: (run: () => void, ms = 0) => this.after(ms, run),
      clearTimeout: (timer: Timer | undefined) => this.#cancel(timer),
      fetch: (url: string, init: RequestInit) => this.#fetch(url, init),
      console: {
        ...console,
        log: (line: string) => this.note(line),
        error: (line: string) => this.note(line),
      },
    });
    crypto.getRandomValues = ((bytes: Uint8Array) =>
      bytes.map((_, i) => (bytes[i] = this.chance.between(0, 255)))) as never;
    crypto.randomUUID = (() => `uuid-${this.chance.between(0, 2 ** 40)}`) as never;
    Object.assign(crypto.subtle, IMMEDIATE);
    return () => {
      Object.assign(globalThis, { setTimeout, clearTimeout, console, fetch });
      Object.assign(Date, { now });
      Object.assign(Math, { random });
      performance.now = steady;
      Object.assign(crypto, { randomUUID, getRandomValues });
      Object.assign(crypto.subtle, { digest, importKey, encrypt, decrypt, sign });
    };
  }

  #fetch(url: string, init: RequestInit): Promise<Response> {
    const isolate = current.getStore();
    if (!isolate) throw new Error(`${url} is requested by nobody`);
    return isolate.request(() => this.onFetch(isolate, url, init));
  }
}

interface Timer {
  at: number;
  order: number;
  run: () => void;
}

/**
 * SHA-256, AES-256-GCM and HMAC as Web Crypto has them, but without its thread: a world's steps follow each other in one
 * order.
 */
const IMMEDIATE = {
  digest: async (_: string, bytes: Uint8Array) =>
    createHash("sha256").update(bytes).digest().buffer.slice(0),
  importKey: async (_: string, bytes: Uint8Array) => bytes,
  encrypt: async ({ iv, additionalData }: AesGcmParams, key: unknown, text: Uint8Array) => {
    const cipher = createCipheriv("aes-256-gcm", key as Uint8Array, iv as Uint8Array);
    cipher.setAAD(additionalData as Uint8Array);
    const parts = [cipher.update(text), cipher.final(), cipher.getAuthTag()];
    return new Uint8Array(Buffer.concat(parts)).buffer;
  },
  decrypt: async ({ iv, additionalData }: AesGcmParams, key: unknown, box: Uint8Array) => {
    const cipher = createDecipheriv("aes-256-gcm", key as Uint8Array, iv as Uint8Array);
    cipher.setAAD(additionalData as Uint8Array).setAuthTag(box.slice(-TAG_BYTES));
    const text = Buffer.concat([cipher.update(box.slice(0, -TAG_BYTES)), cipher.final()]);
    return new Uint8Array(text).buffer;
  },
  sign: async (_: string, key: unknown, text: Uint8Array) =>
    new Uint8Array(
      createHmac("sha256", key as Uint8Array)
        .update(text)
        .digest(),
    ).buffer,
};

const TAG_BYTES = 16;

/** One invocation of the Worker, with a clock of its own. It lives until it ends, or until it dies between any two steps. */
export class Isolate {
  isDead = false;
  readonly world: World;
  readonly name: string;
  readonly id: number;
  /** How far its clock is off from those of the others. */
  readonly skewMs: number;
  readonly #connections = new Connections();
  #statements = 0;

  readonly #diesAtStep: () => number;
  readonly #onDeath: () => void;

  /** @param diesAtStep how likely it dies at a step. */
  constructor(world: World, name: string, diesAtStep = () => 0, onDeath = () => {}) {
    this.world = world;
    this.name = name;
    this.#diesAtStep = diesAtStep;
    this.#onDeath = onDeath;
    this.id = world.isolates++;
    this.skewMs = world.chance.between(-world.isolateSkewMs, world.isolateSkewMs);
    world.invocations.add(this);
  }

  /** Runs the code under test by this isolate's clock. */
  run<T>(work: () => T): T {
    return current.run(this, work);
  }

  /** It has returned. */
  end(): void {
    this.world.invocations.delete(this);
  }

  /** Ends it, whatever it does. */
  kill(): void {
    this.end();
    if (this.isDead) return;
    this.isDead = true;
    this.#onDeath();
  }

  /** Counts what it executes on D1, which refuses more than an invocation may. */
  spend(statements: number): void {
    this.#statements += statements;
    if (this.#statements > STATEMENTS_MAX)
      this.world.fail(new Violation(`${this.name} executes ${this.#statements} statements`));
  }

  /**
   * Makes a request once a connection is free. Whether D1 and Durable Objects count is not documented; here they do.
   */
  request<T>(send: () => Promise<T>): Promise<T> {
    return this.#connections.use(send);
  }

  /** A point at which the isolate may die, and at which a dead one hangs for ever: what it awaits never arrives. */
  async step(): Promise<void> {
    const { world } = this;
    if (!this.isDead && world.chance.happens(this.#diesAtStep())) {
      world.note(`${this.name} dies`);
      this.kill();
    }
    if (this.isDead) await new Promise(() => {});
  }
}
