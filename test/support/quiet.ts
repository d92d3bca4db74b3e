import { afterAll, afterEach, expect } from "vitest";
import { holdsCanary } from "../node/support/canary.ts";

/** The lines printed since the last test, by it or by the Worker, that hold a canary. */
const leaks: string[] = [];

for (const method of ["debug", "info", "log", "warn", "error"] as const) {
  const print = console[method];
  console[method] = (...parts: unknown[]) => {
    const line = parts.join(" ");
    if (holdsCanary(line)) leaks.push(line);
    print(...parts);
  };
}

function expectQuiet(): void {
  expect(leaks.splice(0), "printed").toEqual([]);
}

afterEach(expectQuiet);
// What is printed behind the last test.
afterAll(expectQuiet);
