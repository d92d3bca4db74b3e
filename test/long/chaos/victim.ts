import { type ChildProcess, fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Call } from "./runtime.ts";

/** The errors of calls to a runtime that is being killed. */
const DYING =
  /killed|Network connection lost|internal error|aborted|fetch failed|ECONN|EPIPE|socket|terminated/i;
/** The answer to a write while its workspace moves. */
const MOVING = /moving: try again|"retry_after_seconds"/;
/** How long a running runtime may take to answer. */
const TIMEOUT_MS = 120_000;

type Message = { url: string } | { id: number; value?: unknown; error?: string };

/** The runtime in its process; calls fail when it dies, and wait while it restarts. */
export class Victim {
  kills = 0;
  readonly #folder = mkdtempSync(join(tmpdir(), "chaos-"));
  #child: ChildProcess | null = null;
  #ready: Promise<URL>;
  readonly #calls = new Map<number, PromiseWithResolvers<unknown>>();
  #last = 0;

  constructor() {
    this.#ready = this.#start();
  }

  #start(): Promise<URL> {
    const child = fork(join(import.meta.dirname, "runtime.ts"), [this.#folder], {
      detached: true,
      // What a killed process leaves behind goes with the folder.
      env: { ...process.env, TMPDIR: this.#folder },
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#child = child;
    child.on("exit", () => {
      for (const { reject } of this.#calls.values()) reject(new Error("killed"));
    });
    return new Promise((resolve) => {
      child.on("message", (message: Message) => {
        if ("url" in message) return resolve(new URL(message.url));
        const { id, value, error } = message;
        if (error === undefined) this.#calls.get(id)?.resolve(value);
        else this.#calls.get(id)?.reject(new Error(error));
      });
    });
  }

  async kill(): Promise<void> {
    await this.#ready;
    this.kills++;
    await this.#end();
    this.#ready = this.#start();
    await this.#ready;
  }

  async stop(): Promise<void> {
    await this.#end();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Kills the process and the runtime that it started. */
  async #end(): Promise<void> {
    const child = this.#child;
    if (!child?.pid) return;
    const ended = new Promise((resolve) => child.on("exit", resolve));
    process.kill(-child.pid, "SIGKILL");
    await ended;
  }

  /** Rows of the database that the workspace lives in. */
  rows<Row>(sql: string): Promise<Row[]> {
    return this.platform("rows", sql);
  }

  /** A call of the Platform API, repeated with the same input until it is answered. */
  platform<T>(method: string, input: unknown): Promise<T> {
    return this.#again(method, async () => {
      await this.#ready;
      const call: Call = { id: ++this.#last, method, input };
      const answer = Promise.withResolvers<unknown>();
      this.#calls.set(call.id, answer);
      this.#child?.send(call, (error) => error && answer.reject(error));
      try {
        return (await answer.promise) as T;
      } finally {
        this.#calls.delete(call.id);
      }
    });
  }

  /** A request over HTTP, repeated until it is answered. A 5xx is an error. */
  request(method: string, path: string, apiKey: string, body?: unknown) {
    return this.#again(`${method} ${path}`, async () => {
      const response = await fetch(new URL(path, await this.#ready), {
        method,
        headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
        body: body === undefined ? null : JSON.stringify(body),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      const { status } = response;
      const text = await response.text();
      if (status >= 500) throw new Error(text);
      return { status, text };
    });
  }

  /**
   * Repeats what failed because the runtime was killed, or because the workspace moves.
   *
   * @throws Error if the runtime is up but does not respond for two minutes.
   */
  async #again<T>(what: string, attempt: () => Promise<T>): Promise<T> {
    for (let { kills } = this, until = Date.now() + TIMEOUT_MS; ; ) {
      const killsBefore = this.kills;
      try {
        return await attempt();
      } catch (error) {
        const reason = `${error} ${(error as Error).cause ?? ""}`;
        const isDying = killsBefore !== this.kills || DYING.test(reason);
        if (!isDying && !MOVING.test(reason)) throw new Error(`${what}: ${reason}`);
        if (kills !== this.kills) {
          kills = this.kills;
          until = Date.now() + TIMEOUT_MS;
        } else if (Date.now() > until)
          throw new Error(`${what} was not answered for two minutes: ${reason}`);
      }
      await sleep(50);
    }
  }
}
