import { afterAll, afterEach, expect } from "vitest";
import { formsOf } from "./canary.ts";

/** How keys and secrets begin, and what tests call people and put into the URLs of subscribers. */
const CANARIES = [
  ...["key_live_", "whsec_", "token=t0ken"],
  ...["Zoë “", "Camille Durand", "+33600000000"],
  ...["zoe@example.com", "camille@example.com", "camille.durand@example.com"],
  ...["admin@example.com", "chef@example.com"],
];

const FORMS = CANARIES.flatMap(formsOf);

/** The lines printed since the last test, by it or by the Worker, that hold a canary. */
const leaks: string[] = [];

for (const method of ["debug", "info", "log", "warn", "error"] as const) {
  const print = console[method];
  console[method] = (...parts: unknown[]) => {
    const line = parts.join(" ");
    if (FORMS.some((form) => line.includes(form))) leaks.push(line);
    print(...parts);
  };
}

function expectQuiet(): void {
  expect(leaks.splice(0), "printed").toEqual([]);
}

afterEach(expectQuiet);
// What is printed behind the last test.
afterAll(expectQuiet);
