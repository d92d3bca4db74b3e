import type { InputError } from "../../contract/input-error.ts";
import type { Database, Statements } from "../../db/client.ts";

/** The circumstances of a recording call. */
export interface CallContext {
  env: Env;
  /** The database of its workspace. */
  db: Database;
  /** When the call was received, in Unix milliseconds; records get this time. */
  now: number;
}

/** A recording call that has been checked against the database, and is not written yet. */
export interface CheckedCall {
  /** The ids of its records, in input order. */
  ids: string[];
  /**
   * The statements that record and announce it, to be committed together. They read how many records were inserted or
   * removed. They read null if nothing was written, because the rows that the call was checked against have changed.
   */
  statements: Statements<number | null>;
  /** The error to throw if the database rejects a reference after all; by default, the workspace is unknown. */
  missing?: InputError;
  /**
   * Whether the transaction is tried once, and repeated by the caller only. A second try might undo a change that
   * another call made after the first. Without this, the transaction is safe to repeat.
   */
  isTriedOnce?: boolean;
}

/** Removes records whose id an earlier record has. */
export function uniqueById<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}
