import { afterEach, beforeEach, expect, vi } from "vitest";
import { holdsCanary } from "../node/support/canary.ts";

/** Collects what the tests of a file log instead of printing it: the lines of the current test. */
export function keepLog(): string[] {
  const lines: string[] = [];
  beforeEach(() => {
    lines.length = 0;
    for (const method of ["log", "error"] as const)
      vi.spyOn(console, method).mockImplementation((line: string) => void lines.push(line));
  });
  afterEach(() => expect(lines.filter(holdsCanary), "logged").toEqual([]));
  return lines;
}
