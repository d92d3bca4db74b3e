import { expect } from "vitest";

/** A time in an answer that lies between two instants (Unix milliseconds). */
export function between(from: number, to: number): string {
  return expect.toSatisfy(
    (time: string) => Date.parse(time) >= from && Date.parse(time) <= to,
    `between ${new Date(from).toISOString()} and ${new Date(to).toISOString()}`,
  );
}
