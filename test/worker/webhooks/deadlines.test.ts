import { expect, test } from "vitest";
import { sleep } from "../../../src/timing.ts";
import { createDeadlines } from "../../../src/webhooks/deadlines.ts";

/** Work that ends when it is aborted; returns how long it took. */
const untilAborted = async (signal: AbortSignal) => {
  const startedAt = performance.now();
  await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
  return performance.now() - startedAt;
};

test("work is aborted once its time is up, each at its own", async () => {
  const within = createDeadlines(100);
  const early = within(untilAborted);
  await sleep(50);
  const both = await Promise.all([early, within(untilAborted)]);
  // And after a pause with nothing in progress.
  const all = [...both, await within(untilAborted)];
  // Clocks and timers of the runtime may differ by a millisecond or two.
  expect(Math.min(...all)).toBeGreaterThanOrEqual(98);
});

test("work that ends in time is not aborted, and its result or error is returned", async () => {
  const within = createDeadlines(50);
  const signals: AbortSignal[] = [];
  expect(await within(async (signal) => signals.push(signal))).toBe(1);
  await expect(within(() => Promise.reject(new Error("refused")))).rejects.toThrow("refused");
  await sleep(100);
  expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
});

test("more may be in progress than the runtime allows timers", async () => {
  const within = createDeadlines(60_000);
  const ended = Promise.withResolvers<void>();
  const all = Array.from({ length: 12_000 }, () => within(() => ended.promise));
  ended.resolve();
  expect(await Promise.all(all)).toHaveLength(12_000);
});
