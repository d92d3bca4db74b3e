import { AsyncLocalStorage, AsyncResource } from "node:async_hooks";
import { createCipheriv, createDecipheriv, createHash, createHmac } from "node:crypto";
import { Chance } from "../../../scripts/shared/chance.ts";
import { STATEMENTS_MAX } from "../../../src/db/budget.ts";
import { Connections } from "../../support/connections.ts";

const realImmediate = setImmediate;

/** How far the clock of the isolate whose code runs is off from the other machines'. */
const clock = new AsyncLocalStorage<number>();

/** How much fails, as probabilities and times in milliseconds. */
const USUAL = {
  /** A request to D1 fails before its commit, or its reply is lost. */
  d1Fails: 0.02,
  /** A request to D1 takes up to half a minute. */
  d1IsSlow: 0,
  /** A consumer crashes at a step. */
  consumerCrashes: 0.01,
  /** The messages of a crashed consumer never come back. */
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

/** A violated invariant, which ends a world. */
export class Violation extends Error {}

/**
 * A world with its own clock and its own randomness, both determined by a seed. While it is
 * installed, the code under test gets its time, timers and randomness from it and from nowhere
 * else, so that the same seed gives the same history.
 */
export class World {
  /** The true time, in Unix milliseconds. */
  now = Date.UTC(2026, 0, 5);
  /** How far the machines' clocks are off, in milliseconds, and since when. */
  skewMs = 0;
  skewedAt = 0;
  /** How far the clock of a single isolate may be off from that, in either direction. */
  readonly isolateSkewMs: number;
  /** How many isolates there have been. */
  isolates = 0;
  /** Whether anything fails at all. */
  faults = true;
  /** Until when D1, the queues and the cron do not work, in true time. */
  readonly downUntil = { d1: 0, queues: 0, cron: 0 };
  /** Invocations that a deployment ends. */
  readonly invocations = new Set<Isolate>();
  readonly history: string[] = [];
  readonly chance: Chance;
  #timers: { at: number; order: number; run: () => void }[] = [];
  #order = 0;
  /** What ends this world. */
  #failure: unknown = null;

  /** Whether more fails and changes than usual. Every seventh world is harsh. */
  readonly isHarsh: boolean;
  readonly odds: Readonly<typeof USUAL>;

  constructor(seed: number) {
    this.chance = new Chance(seed);
    this.isolateSkewMs = this.chance.pick([0, 20, 1_000]);
    this.isHarsh = seed % 7 === 0;
    this.odds = this.isHarsh ? this.#pickOdds() : USUAL;
  }

  #pickOdds(): typeof USUAL {
    const { chance } = this;
    return {
      d1Fails: chance.pick([0.02, 0.05, 0.1]),
      d1IsSlow: 0.02,
      consumerCrashes: chance.pick([0.01, 0.03, 0.08]),
      messagesVanish: chance.pick([0, 0.2, 1]),
      queueRefuses: chance.pick([0, 0.05, 0.4]),
      messageIsLost: chance.pick([0, 0.03, 0.3]),
      // Any more, and a failed dispatch would leave more messages than it consumes.
      messageIsDoubled: chance.pick([0.03, 0.05]),
      messageIsLate: chance.pick([0.1, 0.5]),
      lateMs: chance.pick([300_000, 3 * 3_600_000]),
      clockJumpMs: chance.pick([600_000, 3_600_000]),
    };
  }

  /** Sets the machines' clocks. */
  skew(ms: number): void {
    this.skewMs = ms;
    this.skewedAt = this.now;
    this.note(`clocks are off by ${ms} ms`);
  }

  isDown(part: keyof World["downUntil"]): boolean {
    return this.faults && this.now < this.downUntil[part];
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
  after(ms: number, run: () => void): void {
    this.#add(ms, AsyncResource.bind(run));
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#add(ms, resolve));
  }

  #add(ms: number, run: () => void): void {
    this.#timers.push({ at: this.now + Math.max(0, ms), order: this.#order++, run });
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
      if (this.#timers.length === 0) return;
      let next = 0;
      this.#timers.forEach((timer, i) => {
        const best = this.#timers[next] as typeof timer;
        if (timer.at < best.at || (timer.at === best.at && timer.order < best.order)) next = i;
      });
      const [timer] = this.#timers.splice(next, 1);
      if (!timer) return;
      this.now = Math.max(this.now, timer.at);
      timer.run();
    }
  }

  /**
   * Replaces the process's clock, timers and randomness with this world's; returns a function that
   * restores them.
   */
  install(): () => void {
    const {
      setTimeout,
      console,
      Date: { now },
      Math: { random },
    } = globalThis;
    const { randomUUID, getRandomValues } = crypto;
    const { digest, importKey, encrypt, decrypt, sign } = crypto.subtle;
    const steady = performance.now;
    performance.now = () => this.now;
    Date.now = () => this.now + this.skewMs + (clock.getStore() ?? 0);
    Math.random = () => this.chance.number();
    globalThis.setTimeout = ((run: () => void, ms = 0) => this.after(ms, run)) as never;
    globalThis.console = {
      ...console,
      log: (line) => this.note(line),
      error: (line) => this.note(line),
    };
    crypto.getRandomValues = ((bytes: Uint8Array) =>
      bytes.map((_, i) => (bytes[i] = this.chance.between(0, 255)))) as never;
    crypto.randomUUID = (() => `uuid-${this.chance.between(0, 2 ** 40)}`) as never;
    crypto.subtle.digest = (async (_: string, bytes: Uint8Array) =>
      createHash("sha256").update(bytes).digest().buffer.slice(0)) as never;
    Object.assign(crypto.subtle, IMMEDIATE);
    return () => {
      Object.assign(globalThis, { setTimeout, console });
      Object.assign(Date, { now });
      performance.now = steady;
      Object.assign(Math, { random });
      Object.assign(crypto, { randomUUID, getRandomValues });
      Object.assign(crypto.subtle, { digest, importKey, encrypt, decrypt, sign });
    };
  }
}

/** AES-256-GCM and HMAC with SHA-256 as Web Crypto has them, but without its thread: a world's steps follow each other in one order. */
const IMMEDIATE = {
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

/**
 * One invocation of the Worker, in an isolate with its own clock: it lives until it ends, or until a
 * crash between any two steps.
 */
export class Isolate {
  /** Whether it has crashed. */
  dead = false;
  readonly #connections = new Connections();
  readonly world: World;
  readonly name: string;
  readonly crashProbability: number;
  readonly onCrash: () => void;
  readonly id: number;
  readonly #skewMs: number;
  #statements = 0;

  constructor(world: World, name: string, crashProbability: number, onCrash = () => {}) {
    this.world = world;
    this.name = name;
    this.crashProbability = crashProbability;
    this.onCrash = onCrash;
    this.id = world.isolates++;
    this.#skewMs = world.chance.between(-world.isolateSkewMs, world.isolateSkewMs);
  }

  /** Ends it, whatever it does. */
  kill(): void {
    this.world.invocations.delete(this);
    if (this.dead) return;
    this.dead = true;
    this.onCrash();
  }

  /** Counts what it executes on D1, which refuses more than an invocation may. */
  spend(statements: number): void {
    this.#statements += statements;
    if (this.#statements > STATEMENTS_MAX)
      this.world.fail(new Violation(`${this.name} executes ${this.#statements} statements`));
  }

  /** Runs the code under test by this isolate's clock. */
  run<T>(work: () => T): T {
    return clock.run(this.#skewMs, work);
  }

  /**
   * Makes a request once a connection is free. Whether D1 and Durable Objects count is not documented;
   * here they do.
   */
  request<T>(send: () => Promise<T>): Promise<T> {
    return this.#connections.use(send);
  }

  /** A point at which the isolate may crash, and at which a crashed one hangs for ever. */
  async step(): Promise<void> {
    const { world } = this;
    if (!this.dead && world.faults && world.chance.happens(this.crashProbability)) {
      world.note(`${this.name} crashes`);
      this.kill();
    }
    // A crashed isolate never continues: what it awaits never arrives.
    if (this.dead) await new Promise(() => {});
  }
}
