import type { InputError } from "../../contract/input-error.ts";
import type { Statements } from "../../db/client.ts";
import type { Known, Reference } from "./references.ts";

/** A parsed recording call, neither checked against the database nor written yet. */
export interface Recording {
  workspaceId: string;
  /** The ids of its records, in input order. */
  ids: string[];
  /** What it refers to, which must be in its workspace; absent if nothing needs to be looked up. */
  references?: Reference[];
  /** The error if the database rejects a reference after all; by default, its workspace is unknown. */
  missing?: InputError;
  /** Whether it contains personal data, and so needs the workspace's data key. */
  hasPersonalData?: boolean;
  /**
   * Whether it is tried once, and its caller repeats it: a second try might undo what others wrote after the
   * first. Otherwise it is safe to repeat.
   */
  isTriedOnce?: boolean;
  /**
   * The statements that record and announce it, to be committed together in this order. Reads how
   * many records they insert or remove.
   *
   * @param dataKey the data key of its workspace; null if it contains no personal data.
   */
  statements(
    known: Known,
    dataKey: CryptoKey | null,
  ): Statements<number> | Promise<Statements<number>>;
}

export function firstOfEach<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}
