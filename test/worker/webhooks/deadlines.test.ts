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
  const late = within(untilAborted);
  // Clocks and timers of the runtime may differ by a millisecond or two.
  for (const tookMs of await Promise.all([early, late])) expect(tookMs).toBeGreaterThanOrEqual(98);
  // And after a pause with nothing in progress.
  expect(await within(untilAborted)).toBeGreaterThanOrEqual(98);
});

test("work that ends in time is not aborted, and its result or error is returned", async () => {
  const within = createDeadlines(50);
  const signals: AbortSignal[] = [];
  const work = async (signal: AbortSignal) => signals.push(signal);
  expect(await within(work)).toBe(1);
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
