import { vi } from "vitest";

/**
 * Ends timers of `ms`, or all that fit, after 50 ms, and leaves the others alone, until the test ends.
 * Unlike with fake timers, databases and servers answer meanwhile.
 */
export function shortenTimers(ms: number | ((ms: number) => boolean)) {
  const real = globalThis.setTimeout;
  const fits = typeof ms === "number" ? (each: number) => each === ms : ms;
  return vi
    .spyOn(globalThis, "setTimeout")
    .mockImplementation(((run: () => void, each = 0) =>
      real(run, fits(each) ? Math.min(each, 50) : each)) as typeof setTimeout);
}

/** Stops the monotonic clock until the test ends; it goes on only by `passedMs`. The test restores all mocks. */
export function steadyClock(): { passedMs: number } {
  const clock = { passedMs: 0 };
  const startedAt = performance.now();
  vi.spyOn(performance, "now").mockImplementation(() => startedAt + clock.passedMs);
  return clock;
}
