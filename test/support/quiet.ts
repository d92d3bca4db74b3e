import { afterAll, afterEach, expect, vi } from "vitest";
import { holdsCanary } from "../node/support/canary.ts";

/** The lines that were printed since the last test, by it or by the Worker; shown only if a test fails. */
let lines: string[] = [];
/** The lines that contain a canary. */
const leaks: string[] = [];

// At the end of a file, the test runner's own console waits until each line has been transferred. A
// line printed in the background of a request never is, so the tests would not end.
const { log: show } = console;
for (const method of ["debug", "info", "log", "warn", "error"] as const) {
  console[method] = (...parts: unknown[]) => {
    const line = parts.join(" ");
    lines.push(line);
    if (holdsCanary(line)) leaks.push(line);
  };
}

function expectQuiet(): void {
  expect(leaks.splice(0), "printed").toEqual([]);
}

afterEach(({ task }) => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  if (task.result?.state === "fail") show(lines.join("\n"));
  lines = [];
  expectQuiet();
});
// Lines that are printed after the last test are checked, too.
afterAll(expectQuiet);
