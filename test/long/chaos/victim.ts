import { type ChildProcess, fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Injections, isExcused, isInjected } from "../../support/service-faults.ts";
import type { ChaosSettings, InjectedLine } from "./worker.ts";

/** The errors of calls to a runtime that is being killed. */
const DYING =
  /killed|Network connection lost|internal error|aborted|fetch failed|ECONN|EPIPE|socket|terminated/i;

/** How long a running runtime may take, including all retries of a caller. */
const PATIENCE_MS = 120_000;

/** The answer to a request over HTTP. */
export interface Answer {
  status: number;
  text: string;
}

/** The answer to a write while its workspace moves, or its database fails for a moment. */
const MOVING = /moving: try again|"retry_after_seconds"/;

type Message = Partial<InjectedLine> & { url?: string };

/** The runtime in its process; calls fail when it dies, and wait while it restarts. */
export class Victim {
  kills = 0;
  readonly injections = new Injections();
  /** Errors it answered that it should have retried itself. */
  readonly failures: string[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "chaos-"));
  #child: ChildProcess | null = null;
  #ready: Promise<URL> | null = null;
  readonly #wrapper: string;
  readonly #seed: number;
  readonly #percent: number;

  /**
   * @param wrapper the module to run, built from `worker.ts`.
   * @param percent percentage of calls to D1, objects and queues that fail.
   */
  constructor(wrapper: string, seed: number, percent: number) {
    this.#wrapper = wrapper;
    this.#seed = seed;
    this.#percent = percent;
  }

  start(): Promise<URL> {
    const settings: ChaosSettings = {
      seed: this.#seed + this.kills,
      percent: this.#percent,
      next: this.injections.next(),
    };
    const args = [this.#folder, this.#wrapper, JSON.stringify(settings)];
    const child = fork(join(import.meta.dirname, "runtime.ts"), args, {
      detached: true,
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#child = child;
    this.#ready = new Promise((resolve) => {
      child.on("message", (message: Message) => {
        if (message.url) resolve(new URL(message.url));
        if (message.injected) this.injections.note(message.injected, message.index ?? 0);
      });
    });
    return this.#ready;
  }

  async kill(): Promise<void> {
    await this.#ready;
    this.kills++;
    await this.#end();
    await this.start();
  }

  async stop(): Promise<void> {
    await this.#end();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Kills the process and the runtime that it started. */
  async #end(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (!child?.pid) return;
    const ended = new Promise((resolve) => child.on("exit", resolve));
    process.kill(-child.pid, "SIGKILL");
    await ended;
  }

  /** What the wrapper does for us: `platform/METHOD`, `query` and so on. */
  async call<T>(action: string, input: unknown): Promise<T> {
    const response = await fetch(new URL(`/chaos/${action}`, (await this.#ready) ?? undefined), {
      method: "POST",
      body: JSON.stringify(input),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const { value, error } = (await response.json()) as { value: T; error?: string };
    if (error !== undefined) throw new Error(error);
    return value;
  }

  /** Calls a method of the Platform API, as `insist` does. */
  platform<T>(method: string, input: object): Promise<T> {
    return this.insist(`platform/${method}`, input);
  }

  /** A call, repeated with the same input until it is answered, as a platform does. */
  insist<T>(action: string, input: unknown): Promise<T> {
    return this.#again(action, async () => {
      try {
        return { answer: await this.call<T>(action, input) };
      } catch (error) {
        const text = String(error);
        if (MOVING.test(text)) return null;
        if (!isInjected(text)) throw error;
        if (!isExcused(text)) this.failures.push(`${action} failed: ${text}`);
        return null;
      }
    });
  }

  /**
   * A request over HTTP, repeated until it is answered. A 5xx is only accepted if it was a fault
   * that is never retried or, with `isTriedOnce`, any fault.
   */
  request(
    method: string,
    path: string,
    apiKey: string,
    { body, isTriedOnce = false }: { body?: unknown; isTriedOnce?: boolean } = {},
  ): Promise<Answer> {
    return this.#again(`${method} ${path}`, async () => {
      const url = await this.#ready;
      const { kills } = this;
      const response = await fetch(new URL(path, url ?? undefined), {
        method,
        headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
        body: body === undefined ? null : JSON.stringify(body),
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      const { status } = response;
      const text = await response.text();
      if (status < 500) return { answer: { status, text } };
      // A write that a move refuses is no failure, and so leaves no cause.
      const cause = response.headers.get("X-Cause") || text;
      // If the runtime was killed during a switch, writes wait until the sweep continues the move.
      if (kills === this.kills && !MOVING.test(cause) && !isExcused(cause, isTriedOnce))
        this.failures.push(`${method} ${path} answered ${status}: ${cause}`);
      return null;
    });
  }

  /** @throws Error if the runtime is up but does not answer for two minutes. */
  async #again<T>(what: string, attempt: () => Promise<{ answer: T } | null>): Promise<T> {
    let { kills } = this;
    let until = Date.now() + PATIENCE_MS;
    for (;;) {
      let reason = "it met one fault after the other";
      try {
        const done = await attempt();
        if (done) return done.answer;
      } catch (error) {
        reason = `${error} ${(error as Error).cause ?? ""}`;
        if (!DYING.test(reason)) throw error;
      }
      await sleep(50);
      await this.#ready;
      if (kills !== this.kills) {
        kills = this.kills;
        until = Date.now() + PATIENCE_MS;
      } else if (Date.now() > until)
        throw new Error(`${what} was not answered for two minutes: ${reason}`);
    }
  }
}
