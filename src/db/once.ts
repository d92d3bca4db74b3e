import { inArray, lt, type SQL, sql } from "drizzle-orm";
import { COMMITS_FORGOTTEN_MAX, COMMITS_KEPT_MS } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { deleteFrom, insertFrom, select } from "./builder.ts";
import { commit, type Database, inOrder, type Statements, write } from "./client.ts";
import { commits } from "./schema.ts";

/**
 * Commits statements as one transaction that takes effect once, whatever replies are lost and whoever
 * else writes in between: it leaves a token, which a second try meets, and fails by.
 *
 * @param now Unix milliseconds.
 * @param guard true in SQL while the statements change anything, where they depend on a state that
 *   others may end; it must not become true again.
 * @returns what is read of the statements; `null` when a try whose reply was lost had committed them.
 */
export async function commitOnce<R>(
  db: Database,
  statements: Statements<R>,
  now: number,
  guard: SQL = ALWAYS,
): Promise<R | null> {
  const token = `${isoTime(now)}/${crypto.randomUUID()}`;
  const isCommitted = sql`EXISTS (SELECT 1 FROM ${commits} WHERE ${commits.token} = ${token})`;
  const mark = write(insertFrom(commits, { token }, sql`WHERE ${guard} OR ${isCommitted}`));
  try {
    const [, result] = await commit(db, inOrder([mark, statements]));
    return result;
  } catch (error) {
    if (error instanceof Error && error.message.includes(TAKEN)) return null;
    throw error;
  }
}

/** The guard of statements that may change something whatever others do. */
export const ALWAYS = sql`true`;

const TAKEN = "UNIQUE constraint failed: commits.token";

/** Deletes the tokens of transactions that nobody tries again any more. */
export function deleteCommits(now: number): Statements<number> {
  const old = select({ token: commits.token })
    .from(commits)
    .where(lt(commits.token, isoTime(now - COMMITS_KEPT_MS)))
    .orderBy(commits.token)
    .limit(COMMITS_FORGOTTEN_MAX);
  return write(deleteFrom(commits).where(inArray(commits.token, old)));
}
