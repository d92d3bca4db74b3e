import type { InputError } from "../../contract/input-error.ts";
import type { Database, Statements } from "../../db/client.ts";

/** Where and when a call is recorded. */
export interface Context {
  env: Env;
  /** The database of its workspace. */
  db: Database;
  /** Unix milliseconds: when it is received, and recorded. */
  now: number;
}

/** A recording call, checked against the database, but not written yet. */
export interface Recording {
  /** The ids of its records, in input order. */
  ids: string[];
  /**
   * The statements that record and announce it, to be committed together. They read how many records were
   * inserted or removed; null if nothing was written, because what the call was checked against has changed.
   */
  statements: Statements<number | null>;
  /** The error if the database rejects a reference after all; by default, its workspace is unknown. */
  missing?: InputError;
  /**
   * Whether it is tried once, and its caller repeats it: a second try might undo what others wrote after the
   * first. Otherwise it is safe to repeat.
   */
  isTriedOnce?: boolean;
}

/** The records without repetitions: of those with the same id, the first. */
export function uniqueById<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}
