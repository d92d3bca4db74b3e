import { expect, test } from "vitest";
import { abortAfter, sleep, withTimeout } from "../../src/timing.ts";

test("work is aborted once its time is up", async () => {
  const startedAt = performance.now();
  const aborted = (signal: AbortSignal) =>
    new Promise<string>((resolve) => signal.addEventListener("abort", () => resolve("aborted")));
  expect(await abortAfter(100, aborted)).toBe("aborted");
  // Clocks and timers of the runtime may differ by a millisecond or two.
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(98);
});

test("work that ends in time is not aborted, and its result or error is returned", async () => {
  const signals: AbortSignal[] = [];
  expect(await abortAfter(50, async (signal) => signals.push(signal))).toBe(1);
  await expect(abortAfter(50, () => Promise.reject(new Error("refused")))).rejects.toThrow(
    "refused",
  );
  await sleep(100);
  expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
});

test("work that takes too long is replaced by what is late, and goes on", async () => {
  const work = sleep(100).then(() => "done");
  expect(await withTimeout(20, work, () => "late")).toBe("late");
  expect(await withTimeout(5_000, work, () => "late")).toBe("done");
  const late = () => {
    throw new Error("no answer");
  };
  await expect(withTimeout(20, sleep(100), late)).rejects.toThrow("no answer");
});
