import {
  and,
  type Column,
  desc,
  eq,
  getTableColumns,
  isNotNull,
  isNull,
  type SQL,
  sql,
} from "drizzle-orm";
import { CLEANUP_MAX } from "../db/budget.ts";
import { commaList, inJson, qb, unqualified } from "../db/builder.ts";
import {
  combine,
  commit,
  counted,
  type Database,
  type Part,
  readAs,
  type Statements,
} from "../db/client.ts";
import { DIRECTORY } from "../db/databases.ts";
import { apiKeys, moves, subscriptions, workspaces } from "../db/schema.ts";
import { endSubscriptions } from "../delivery/ending.ts";
import { GATED_KEY, type GatedKey } from "../workspaces/key-rows.ts";
import { selectRows, sourcesOf } from "../workspaces/rows.ts";
import {
  type ChildTable,
  MOVED,
  OWNED,
  type OwnedTable,
  referencesTo,
} from "../workspaces/table-registry.ts";

/*
 * How data ends. This file erases workspaces. erase-leads.ts erases leads, retention.ts deletes old events, and
 * export.ts reads all data of a workspace or a lead.
 */

/**
 * Begins to erase a workspace, in its own database. From now on, it cannot be moved or get access, and no record is
 * stored for it (`failIfErasing` in workspaces/write-guard.ts).
 *
 * @returns whether it is moving, so that it cannot be erased now.
 */
export function beginErasure(workspaceId: string): Statements<boolean> {
  const { id, writeLock, database } = workspaces;
  const statements = combine({
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

/** Maximum gates that one call invalidates, because the calls that an invocation can make are limited. */
export const GATES_AT_ONCE = 500;

/**
 * Begins to erase a workspace, in the directory. Revokes all its keys; from now on, no key is created for it. If the
 * erasure stops between `beginErasure` and this, all its keys stay valid until the next call.
 *
 * @returns the keys whose gates must be invalidated, up to `GATES_AT_ONCE`, and the name of the workspace's database,
 *   which is null if the directory does not know the workspace. Keys that were in use lately come first.
 */
export function closeKeys(
  workspaceId: string,
  now: number,
): Statements<{ keys: GatedKey[]; database: string | null }> {
  const isOwn = eq(apiKeys.workspaceId, workspaceId);
  const { id, database } = workspaces;
  const statements = combine({
    begun: qb.update(workspaces).set({ erasing: true }).where(eq(id, workspaceId)),
    revoked: qb
      .update(apiKeys)
      .set({ revokedAt: now })
      .where(and(isOwn, isNull(apiKeys.revokedAt))),
    keys: qb
      .select(GATED_KEY)
      .from(apiKeys)
      .where(and(isOwn, isNotNull(apiKeys.lastUsedAt)))
      .orderBy(desc(apiKeys.lastUsedAt))
      .limit(GATES_AT_ONCE),
    entries: qb.select({ database }).from(workspaces).where(eq(id, workspaceId)),
  });
  return readAs(statements, ({ keys, entries: [entry] }) => ({
    keys,
    database: entry ? (entry.database ?? DIRECTORY) : null,
  }));
}

/** Notes that the gates of revoked keys are invalidated: to `closeKeys`, they look like keys that were never used. */
export function noteInvalidated(keys: GatedKey[]): Part {
  const ids = keys.map(({ id }) => id);
  return qb.update(apiKeys).set({ lastUsedAt: null }).where(inJson(apiKeys.id, ids));
}

/** Closes a workspace for good, in its own database: ends its access and deletes its subscriptions. */
export function closeWorkspace(id: string, now: number): Statements<unknown> {
  return combine({
    access: qb.update(workspaces).set({ accessGranted: false }).where(eq(workspaces.id, id)),
    subscriptions: endSubscriptions(eq(subscriptions.workspaceId, id), { deletedAt: now }),
  });
}

/**
 * Erases a closed workspace in chunks, until nothing remains or `hasTime` returns false. The next call continues. The
 * row of the workspace comes last, when no other row refers to it.
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
 * Erases up to `CLEANUP_MAX` rows of each table that a move left in a database where the workspace does not live. Once
 * none remain, unlocks the row of the workspace, which stays as a directory entry. Its data key is deleted, because
 * `rewrapDataKeys` does not reach it there.
 *
 * @returns whether nothing else remains.
 */
export function eraseLeftBehind(id: string, moveId: string): Statements<boolean> {
  const isOwn = eq(workspaces.id, id);
  const isHeld = and(isOwn, eq(workspaces.moveId, moveId));
  const blank = { name: "", adminEmails: [], sealedDataKey: null };
  const isLeft = sql`EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isHeld})`;
  const chunk = combine({
    erased: whileUnlocked(
      isHeld,
      combine({
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
 * Erases up to `CLEANUP_MAX` of the remaining rows, and the row of the workspace once no others are left.
 *
 * @returns whether the row of the workspace is still stored.
 */
function eraseChunk(id: string): Statements<boolean> {
  const isOwn = eq(workspaces.id, id);
  const chunk = combine({
    erased: whileUnlocked(isOwn, eraseNext(OWNED, id)),
    found: qb.select({ id: workspaces.id }).from(workspaces).where(isOwn),
    // The directory may still have its last move.
    moved: qb.delete(moves).where(eq(moves.workspaceId, id)),
  });
  return readAs(chunk, ({ found }) => found.length > 0);
}

/** Lets statements write to a locked workspace, which is unlocked within their transaction. */
function whileUnlocked(
  isOwn: SQL | undefined,
  statements: Statements<unknown>,
): Statements<unknown> {
  const change = (from: "locked" | "arriving", to: "locked" | "arriving") =>
    qb
      .update(workspaces)
      .set({ writeLock: to })
      .where(and(isOwn, eq(workspaces.writeLock, from)));
  return combine({
    unlocked: change("locked", "arriving"),
    statements,
    locked: change("arriving", "locked"),
  });
}

/**
 * Erases up to `CLEANUP_MAX` of a workspace's rows in each of these tables, if an SQL condition holds. Erases none
 * while a later table has rows, because those may refer to them.
 */
function eraseNext(
  tables: OwnedTable[],
  id: string,
  condition: SQL = sql`true`,
): Statements<unknown> {
  const erased = tables.flatMap((owned, i) => {
    // Rows that are found through another table are erased with its rows.
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
  return combine(erased.reverse());
}

/** SQL condition: a workspace has no rows in these tables. */
export function isEmpty(tables: OwnedTable[], id: string): SQL {
  // Rows that are found through another table are erased with its rows.
  const sources = tables.filter(({ through }) => !through).flatMap((owned) => sourcesOf(owned, id));
  const absent = sources.map((source) => sql`NOT EXISTS (SELECT 1 FROM ${source})`);
  return sql`(${sql.join([sql`true`, ...absent], sql` AND `)})`;
}

/**
 * Deletes rows of a table, with the rows that are found through them or belong to them, and clears references to them.
 * Reads how many rows of the table it deleted.
 */
export function deleteRows(owned: OwnedTable, isSelected: SQL): Statements<number> {
  const { table, children } = owned;
  const followers = OWNED.filter(({ through }) => through === table);
  const statements = combine({
    followers: combine(
      followers.map((follower) => deleteRows(follower, isFoundThrough(follower, isSelected))),
    ),
    children: combine(
      children.map(
        (child) => sql`DELETE FROM ${child.table} WHERE ${isChildOf(child, owned, isSelected)}`,
      ),
    ),
    references: combine(
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
