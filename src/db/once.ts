import { type SQL, sql } from "drizzle-orm";
import { COMMITS_FORGOTTEN_MAX, COMMITS_KEPT_MS } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
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
  const isCommitted = sql`EXISTS (SELECT 1 FROM ${commits} WHERE token = ${token})`;
  const mark = write(
    sql`INSERT INTO ${commits} (token) SELECT ${token} WHERE ${guard} OR ${isCommitted}`,
  );
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

/** Forgets transactions that nobody tries again any more. */
export function forgetCommits(now: number): Statements<number> {
  return write(sql`DELETE FROM ${commits} WHERE token IN (
    SELECT token FROM ${commits} WHERE token < ${isoTime(now - COMMITS_KEPT_MS)}
    ORDER BY token LIMIT ${COMMITS_FORGOTTEN_MAX})`);
}
