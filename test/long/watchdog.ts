/**
 * Ends a test that does not end by itself. A thread that is blocked, as in a synchronous call, runs no timer,
 * so another thread watches it. It ends the process, which fails the run, and says what the test was doing.
 */
import { Worker } from "node:worker_threads";
import { afterEach, beforeEach, expect } from "vitest";
import type { Watched } from "./watchdog-thread.ts";

/** How long a test may go on after its own time limit, which ends all that do not block their thread. */
const GRACE_MS = 30_000;
/** How long a file may take to load, and between two tests, where `beforeAll` may have ten minutes. */
const BETWEEN_MS = 600_000 + GRACE_MS;

const shared = globalThis as { watchdog?: Worker };
shared.watchdog ??= new Worker(new URL("./watchdog-thread.ts", import.meta.url));
const { watchdog } = shared;
watchdog.unref();

function watch(name: string, limitMs: number): void {
  watchdog.postMessage({ name, limitMs } satisfies Watched);
}

const file = () => expect.getState().testPath ?? "a file";

watch(`${file()}, before its first test`, BETWEEN_MS);
beforeEach(({ task }) => watch(`${file()} > ${task.name}`, task.timeout + GRACE_MS));
afterEach(({ task }) => watch(`${file()}, after ${task.name}`, BETWEEN_MS));
