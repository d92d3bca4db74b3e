import type { Redelivered } from "../../src/history/views.ts";
import { Fault, type RedeliveryRange, redeliver } from "./api.ts";

/*
 * Replays take a call for each part of their range. The server stores how far each one is, so the page may be closed at
 * any time: the server then goes on by itself, but more slowly.
 */

/** Makes a call with a cursor, from null on, until there is no next one. */
async function forEachPart(
  call: (cursor: string | null) => Promise<Redelivered>,
  goesOn: (part: Redelivered) => boolean,
  cursor: string | null = null,
): Promise<void> {
  let next = cursor;
  do {
    const part = await call(next);
    if (!goesOn(part)) return;
    next = part.nextCursor;
  } while (next !== null);
}

/** Counts the events of a range, as long as the number is wanted. */
export async function countRange(
  id: string,
  range: RedeliveryRange,
  isWanted: () => boolean,
): Promise<number> {
  let sum = 0;
  await forEachPart(
    (cursor) => redeliver(id, { ...range, cursor, dryRun: true }),
    ({ count }) => {
      sum += count;
      return isWanted();
    },
  );
  return sum;
}

/** Begins a replay: waits for its first part, and leaves the others to go on in the background. */
export async function beginReplay(
  call: (cursor: string | null) => Promise<Redelivered>,
): Promise<Redelivered> {
  const first = await call(null);
  if (first.nextCursor !== null)
    forEachPart(call, () => true, first.nextCursor).catch((error: unknown) => {
      // The server goes on where the calls have stopped.
      if (!(error instanceof Fault)) throw error;
    });
  return first;
}
