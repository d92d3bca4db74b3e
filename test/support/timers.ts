import { vi } from "vitest";

/**
 * Ends timers of `ms`, or all that fit, after 50 ms, and leaves the others alone, until the test ends.
 * Unlike with fake timers, databases and servers answer meanwhile.
 */
export function shortenTimers(ms: number | ((ms: number) => boolean)) {
  return changeTimers(ms, (each) => Math.min(each, 50));
}

/** Ends timers of `ms` after half a minute, so that a busy machine responds before them, until the test ends. */
export function lengthenTimers(ms: number) {
  return changeTimers(ms, () => 30_000);
}

function changeTimers(ms: number | ((ms: number) => boolean), changed: (ms: number) => number) {
  const real = globalThis.setTimeout;
  const fits = typeof ms === "number" ? (each: number) => each === ms : ms;
  return vi
    .spyOn(globalThis, "setTimeout")
    .mockImplementation(((run: () => void, each = 0) =>
      real(run, fits(each) ? changed(each) : each)) as typeof setTimeout);
}

/** Stops the monotonic clock until the test ends; it goes on only by `passedMs`. The test restores all mocks. */
export function steadyClock(): { passedMs: number } {
  const clock = { passedMs: 0 };
  const startedAt = performance.now();
  vi.spyOn(performance, "now").mockImplementation(() => startedAt + clock.passedMs);
  return clock;
}
