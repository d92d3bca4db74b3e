import { inArray, lt, type SQL, sql } from "drizzle-orm";
import { HOUR_MS, isoTime } from "../contract/time.ts";
import { insertFrom, qb } from "./builder.ts";
import { commit, type Database, type Executable, inOrder, type Statements } from "./client.ts";
import { commits } from "./schema.ts";

/** How long a transaction's token is kept: longer than any retry can take. */
const COMMITS_KEPT_MS = HOUR_MS;
/** Maximum tokens that one sweep deletes. */
const COMMITS_FORGOTTEN_MAX = 20_000;

/**
 * Commits statements as one transaction that takes effect exactly once, even if replies are lost or
 * others write in between: a second try violates the uniqueness of its token.
 *
 * @param guard SQL condition that holds while the statements would still change anything, if that
 *   depends on what others write. Once false, it must stay false.
 * @returns the result of the statements; `null` if an earlier try, whose reply was lost, has committed
 *   them.
 */
export async function commitOnce<R>(
  db: Database,
  statements: Statements<R>,
  now: number,
  guard: SQL = ALWAYS,
): Promise<R | null> {
  const token = `${isoTime(now)}/${crypto.randomUUID()}`;
  const isCommitted = sql`EXISTS (SELECT 1 FROM ${commits} WHERE ${commits.token} = ${token})`;
  const mark = insertFrom(commits, { token }, sql`WHERE ${guard} OR ${isCommitted}`);
  try {
    const [, result] = await commit(db, inOrder([mark, statements]));
    return result;
  } catch (error) {
    if (error instanceof Error && error.message.includes(TAKEN)) return null;
    throw error;
  }
}

/** The guard of statements that do not depend on what others write. */
const ALWAYS = sql`true`;

const TAKEN = "UNIQUE constraint failed: commits.token";

/** Deletes the tokens of transactions that can no longer be retried. */
export function deleteCommits(now: number): Executable {
  const old = qb
    .select({ token: commits.token })
    .from(commits)
    .where(lt(commits.token, isoTime(now - COMMITS_KEPT_MS)))
    .orderBy(commits.token)
    .limit(COMMITS_FORGOTTEN_MAX);
  return qb.delete(commits).where(inArray(commits.token, old));
}
