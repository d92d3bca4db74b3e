import {
  and,
  type Column,
  eq,
  getTableColumns,
  isNotNull,
  isNull,
  type SQL,
  sql,
} from "drizzle-orm";
import { commaList, qb, unqualified } from "../../db/builder.ts";
import {
  CLEANUP_MAX,
  commit,
  counted,
  type Database,
  readAs,
  type Statements,
  transaction,
} from "../../db/client.ts";
import { DIRECTORY } from "../../db/databases.ts";
import { apiKeys, moves, subscriptions, workspaces } from "../../db/schema.ts";
import { endSubscriptions } from "../../delivery/cancellation.ts";
import { GATED_KEY, type GatedKey } from "../api-keys.ts";
import { selectRows, sourcesOf } from "../rows.ts";
import { type ChildTable, MOVED, OWNED, type OwnedTable, referencesTo } from "../table-registry.ts";

/**
 * Begins to erase a workspace, in its database: from now on, it is not moved, gets no access, and nothing
 * is recorded for it.
 *
 * @returns whether it is moving; then it cannot be erased.
 */
export function beginErasure(workspaceId: string): Statements<boolean> {
  const { id, writeLock, database } = workspaces;
  const statements = transaction({
    begun: qb
      .update(workspaces)
      .set({ erasing: true })
      .where(and(eq(id, workspaceId), isNull(writeLock))),
    moving: qb
      .select({ writeLock })
      .from(workspaces)
      .where(and(eq(id, workspaceId), isNull(database), isNotNull(writeLock))),
  });
  return readAs(statements, ({ moving }) => moving.length > 0);
}

/**
 * Begins to erase a workspace, in the directory: revokes all its keys, and from now on, it gets no others.
 * If this was cut off after `beginErasure`, its keys are valid, old and new, until the next call.
 *
 * @returns the keys, whose gates must be told, and the name of the workspace's database; null if
 *   there is no such workspace.
 */
export function closeKeys(
  workspaceId: string,
  now: number,
): Statements<{ keys: GatedKey[]; database: string } | null> {
  const isOwn = eq(apiKeys.workspaceId, workspaceId);
  const { id, database } = workspaces;
  const statements = transaction({
    begun: qb.update(workspaces).set({ erasing: true }).where(eq(id, workspaceId)),
    revoked: qb
      .update(apiKeys)
      .set({ revokedAt: now })
      .where(and(isOwn, isNull(apiKeys.revokedAt))),
    keys: qb.select(GATED_KEY).from(apiKeys).where(isOwn),
    entries: qb.select({ database }).from(workspaces).where(eq(id, workspaceId)),
  });
  return readAs(statements, ({ keys, entries: [entry] }) =>
    entry ? { keys, database: entry.database ?? DIRECTORY } : null,
  );
}

/** Closes a workspace for good, in its database: its access ends, its subscriptions are deleted. */
export function closeWorkspace(id: string, now: number): Statements<unknown> {
  return transaction({
    access: qb
      .update(workspaces)
      .set({ accessGranted: false })
      .where(and(eq(workspaces.id, id), eq(workspaces.accessGranted, true))),
    subscriptions: endSubscriptions(eq(subscriptions.workspaceId, id), {
      deletedAt: now,
      earlierSecrets: null,
    }),
  });
}

/**
 * Erases a closed workspace in chunks, until nothing remains or `hasTime` returns false; the next
 * call continues. The workspace itself goes last, once nothing refers to it.
 *
 * @returns whether nothing remains.
 */
export async function eraseAllRows(
  db: Database,
  id: string,
  hasTime: () => boolean,
): Promise<boolean> {
  let isLeft = await commit(db, eraseChunk(id));
  while (isLeft && hasTime()) isLeft = await commit(db, eraseChunk(id));
  return !isLeft;
}

/**
 * Erases up to `CLEANUP_MAX` rows of each kind that a move left behind in a database where the workspace
 * does not live, and releases its row from the move once nothing else remains. The row stays, as an entry,
 * without its data key: `resealUpTo` does not reach it.
 *
 * @returns whether nothing else remains.
 */
export function eraseLeftBehind(id: string, moveId: string): Statements<boolean> {
  const isOwn = eq(workspaces.id, id);
  const isHeld = and(isOwn, eq(workspaces.moveId, moveId));
  const blank = { name: "", adminEmails: [], dataKey: null, webhooksMax: null };
  const isLeft = sql`EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isHeld})`;
  const chunk = transaction({
    erased: whileUnlocked(
      isHeld,
      transaction({
        blanked: qb.update(workspaces).set(blank).where(isHeld),
        rows: eraseNext(MOVED, id, isLeft),
      }),
    ),
    released: qb
      .update(workspaces)
      .set({ moveId: null })
      .where(and(isHeld, isEmpty(MOVED, id))),
    left: qb.select({ id: workspaces.id }).from(workspaces).where(isHeld),
  });
  return readAs(chunk, ({ left }) => left.length === 0);
}

/**
 * Erases up to `CLEANUP_MAX` of the remaining rows, and the workspace itself once nothing else is left.
 *
 * @returns whether the workspace is still there.
 */
function eraseChunk(id: string): Statements<boolean> {
  const isOwn = eq(workspaces.id, id);
  const chunk = transaction({
    erased: whileUnlocked(isOwn, eraseNext(OWNED, id)),
    found: qb.select({ id: workspaces.id }).from(workspaces).where(isOwn),
    // Its last move, if that has not deleted yet what was left behind.
    moved: sql`DELETE FROM ${moves} WHERE ${moves.workspaceId} = ${id}
      AND NOT EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isOwn})`,
  });
  return readAs(chunk, ({ found }) => found.length > 0);
}

/** Statements that may write to a closed workspace: within their transaction, it is not closed. */
function whileUnlocked(
  isOwn: SQL | undefined,
  statements: Statements<unknown>,
): Statements<unknown> {
  const change = (from: "locked" | "arriving", to: "locked" | "arriving") =>
    qb
      .update(workspaces)
      .set({ writeLock: to })
      .where(and(isOwn, eq(workspaces.writeLock, from)));
  return transaction({
    unlocked: change("locked", "arriving"),
    statements,
    locked: change("arriving", "locked"),
  });
}

/**
 * Erases up to `CLEANUP_MAX` of a workspace's rows in each of these tables, but none while a later
 * table, whose rows may refer to them, has any; nothing unless an SQL condition holds.
 */
function eraseNext(
  tables: OwnedTable[],
  id: string,
  condition: SQL = sql`true`,
): Statements<unknown> {
  const erased = tables.flatMap((owned, i) => {
    // Rows found through those of another table are erased with them.
    if (owned.through) return [];
    const isNext = sql`AND ${condition} AND ${isEmpty(tables.slice(i + 1), id)}`;
    const keys = owned.key.map((column, n) => sql`${column} AS ${sql.raw(`k${n}`)}`);
    const next = selectRows(owned, id, keys, CLEANUP_MAX, isNext);
    const names = owned.key.map((_, n) => sql.raw(`k${n}`));
    return deleteRows(
      owned,
      sql`(${commaList([...owned.key])}) IN (SELECT ${commaList(names)} FROM (${next}))`,
    );
  });
  return transaction(erased.reverse());
}

/** SQL condition: a workspace has no rows in these tables. */
export function isEmpty(tables: OwnedTable[], id: string): SQL {
  // Rows found through those of another table are erased with them.
  const sources = tables.filter(({ through }) => !through).flatMap((owned) => sourcesOf(owned, id));
  const absent = sources.map((source) => sql`NOT EXISTS (SELECT 1 FROM ${source})`);
  return sql`(${sql.join([sql`true`, ...absent], sql` AND `)})`;
}

/**
 * Deletes rows of a table with the rows that are found through them or belong to them, and references to
 * them. Reads how many rows of the table it deleted.
 */
export function deleteRows(owned: OwnedTable, isSelected: SQL): Statements<number> {
  const { table, children } = owned;
  const followers = OWNED.filter(({ through }) => through === table);
  const statements = transaction({
    followers: transaction(
      followers.map((follower) => deleteRows(follower, isFoundThrough(follower, isSelected))),
    ),
    children: transaction(
      children.map(
        (child) => sql`DELETE FROM ${child.table} WHERE ${isChildOf(child, owned, isSelected)}`,
      ),
    ),
    references: transaction(
      referencesTo(table).map(
        ({ column, to }) =>
          sql`UPDATE ${column.table} SET ${unqualified(column)} = NULL
        WHERE ${column} IN (SELECT ${to} FROM ${table} WHERE ${isSelected})`,
      ),
    ),
    deleted: counted(qb.delete(table).where(isSelected)),
  });
  return readAs(statements, ({ deleted }) => deleted);
}

/** SQL condition: the row is found through a selected row of the other table. */
function isFoundThrough({ table, through, key, ranges }: OwnedTable, isSelected: SQL): SQL {
  return sql`(${commaList([...key])}) IN (SELECT ${commaList([...key])} FROM ${through} CROSS JOIN ${table}
    WHERE ${isSelected} AND ${ranges?.[0]})`;
}

/** SQL condition: the row belongs to a selected row of the other table. */
function isChildOf({ table, links }: ChildTable, parent: OwnedTable, isSelected: SQL): SQL {
  const columns = getTableColumns(table) as Record<string, Column>;
  const own = Object.keys(links).map((name) => columns[name] as Column);
  return sql`(${commaList(own)}) IN (
    SELECT ${commaList(Object.values(links))} FROM ${parent.table} WHERE ${isSelected})`;
}
