import type { InputError } from "../../contract/input-error.ts";
import { type Database, inOrder, type Statements } from "../../db/client.ts";
import { ALWAYS } from "../../db/commit-once.ts";
import type { Wake } from "../../webhooks/dispatch/wake.ts";
import { commitAnnounced } from "../../webhooks/outbox.ts";
import type { KnownAutomations, References } from "./references.ts";

/** A parsed recording call, neither checked against the database nor written yet. */
export interface Recording extends References {
  /** The ids of its records, in input order. */
  ids: string[];
  /** Whether it changes existing rows, and so must take effect only once. */
  once?: boolean;
  /** The error if the database rejects a reference after all; by default, its workspace is unknown. */
  missing?: InputError;
  /** Whether it contains personal data, and so needs the workspace's data key. */
  hasPersonalData?: boolean;
  /**
   * The statements that record and announce it, to be committed together in this order. Reads how
   * many records they insert or remove.
   *
   * @throws InputError if it needs a data key and gets none, because its workspace is unknown.
   */
  statements(needs: Needs): Statements<number> | Promise<Statements<number>>;
}

/** What a recording's statements are made from, once its references have been checked. */
interface Needs {
  automations: KnownAutomations;
  /** Leads that were erased: runs lose their link to them. Keys from `inWorkspace`. */
  erasedLeads: Set<string>;
  /** The data key of its workspace; null if it contains no personal data, or the workspace is unknown. */
  dataKey: CryptoKey | null;
}

/** A recording whose references have been checked. */
export interface Prepared extends Required<Pick<Recording, "workspaceId" | "once">> {
  statements: Statements<number>;
}

/**
 * Commits recordings, in order, in one transaction.
 *
 * @returns the subscriptions to wake, and how many records were inserted or removed; the count
 *   omits what an earlier try wrote if its reply was lost.
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

export function firstOfEach<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}
