import type { InputError } from "../contract/input-error.ts";
import { type Database, inOrder, type Statements } from "../db/client.ts";
import { ALWAYS } from "../db/once.ts";
import type { Wake } from "../model/due.ts";
import { commitAnnounced } from "../model/events.ts";
import type { KnownAutomations, Leftovers, References } from "./references.ts";

/** What one call of the platform records, parsed, but neither checked against the database nor written. */
export interface Recording extends References {
  /** Identifiers of its records, in the order of the input. */
  ids: string[];
  /**
   * Whether it changes what is there, so that it must take effect once. What inserts alone, where
   * nothing is there, changes nothing the second time.
   */
  once: boolean;
  /** What is wrong when the database refuses a reference after all. */
  missing: InputError;
  leaves: Leftovers;
  /**
   * The statements that record and announce it, to be committed together and in this order. Reads how
   * many records they insert, or remove.
   *
   * @param automations those that it refers to, once its references have been checked.
   */
  statements(automations: KnownAutomations): Statements<number>;
}

/** A recording whose references have been found. */
export interface Prepared {
  workspaceId: string;
  once: boolean;
  statements: Statements<number>;
}

/**
 * Commits recordings, in order, in one transaction.
 *
 * @returns the subscriptions to be woken, and how many records were inserted or removed; what a try
 *   wrote whose reply was lost is not counted.
 */
export async function commitRecordings(
  db: Database,
  prepared: Prepared[],
  now: number,
): Promise<{ changed: number; wakes: Wake[] }> {
  const workspaceIds = [...new Set(prepared.map(({ workspaceId }) => workspaceId))];
  const statements = inOrder(prepared.map((one) => one.statements));
  const guard = prepared.some(({ once }) => once) ? ALWAYS : undefined;
  const { result, wakes } = await commitAnnounced(db, statements, workspaceIds, now, guard);
  return { changed: sum(result ?? []), wakes };
}

export function sum(counts: number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}

/** Of several records with one id, the first. */
export function firstOfEach<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}
