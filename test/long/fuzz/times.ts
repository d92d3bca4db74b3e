import { expect } from "vitest";

/** Matches a time in a response that lies between two times (Unix milliseconds). */
export function between(from: number, to: number): string {
  return expect.toSatisfy(
    (time: string) => Date.parse(time) >= from && Date.parse(time) <= to,
    `between ${new Date(from).toISOString()} and ${new Date(to).toISOString()}`,
  );
}
