import { type ChildProcess, fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** What a runtime says that dies, or whose process outlives it by a moment. */
const DYING =
  /killed|Network connection lost|internal error|aborted|fetch failed|ECONN|EPIPE|socket|terminated/i;

/** The runtime in its process; calls fail when it dies, and wait while it starts again. */
export class Victim {
  kills = 0;
  #folder = mkdtempSync(join(tmpdir(), "chaos-"));
  #child: ChildProcess | null = null;
  #ready: Promise<URL> | null = null;
  #calls = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  #lastCall = 0;

  start(): Promise<URL> {
    const child = fork(join(import.meta.dirname, "runtime.ts"), [this.#folder], {
      detached: true,
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#child = child;
    this.#ready = new Promise((resolve) => {
      child.on(
        "message",
        (message: { url?: string; call?: number; error?: string; value?: never }) => {
          if (message.url) resolve(new URL(message.url));
          const call = this.#calls.get(message.call ?? -1);
          if (message.error !== undefined) call?.reject(new Error(message.error));
          else call?.resolve(message.value as never);
        },
      );
    });
    child.on("exit", () => {
      for (const { reject } of this.#calls.values()) reject(new Error("killed"));
      this.#calls.clear();
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
    this.#child = null;
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Ends the process and the runtime that it started, at once. */
  async #end(): Promise<void> {
    const child = this.#child;
    if (!child?.pid) return;
    const ended = new Promise((resolve) => child.on("exit", resolve));
    this.killNow();
    await ended;
  }

  /** Kills the process and the runtime that it started, without waiting. */
  killNow(): void {
    if (this.#child?.pid && this.#child.exitCode === null)
      process.kill(-this.#child.pid, "SIGKILL");
  }

  async call<T>(target: string, input: unknown): Promise<T> {
    const url = await this.#ready;
    if (!url) throw new Error("not started");
    const call = ++this.#lastCall;
    return new Promise<T>((resolve, reject) => {
      this.#calls.set(call, { resolve: resolve as (value: never) => void, reject });
      this.#child?.send({ call, target, input }, (error) => error && reject(new Error("killed")));
    });
  }

  /** A call, made again with the same input until it is answered, as a platform does. */
  async insist<T>(target: string, input: unknown): Promise<T> {
    for (;;) {
      try {
        return await this.call<T>(target, input);
      } catch (error) {
        if (!DYING.test(String(error))) throw error;
        await sleep(50);
      }
    }
  }

  get url(): Promise<URL> {
    return this.#ready ?? this.start();
  }
}
