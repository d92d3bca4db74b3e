import { afterAll, afterEach, expect } from "vitest";
import { holdsCanary } from "../node/support/canary.ts";

/** What was printed since the last test, by it or by the Worker: shown only when a test fails. */
let lines: string[] = [];
/** Those of them that hold a canary. */
const leaks: string[] = [];

// The test runner's own console waits, at the end of a file, until each line has been taken over. One
// that is printed in the background of a request never is: the run would not end.
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
  if (task.result?.state === "fail") show(lines.join("\n"));
  lines = [];
  expectQuiet();
});
// What is printed behind the last test.
afterAll(expectQuiet);
