import { type Execute, isNewer, isOlder, literal, query, type Row, type Tables } from "./tables.ts";

/** The workspaces of a restored database, according to the directory. */
export interface Placements {
  /** The statements that settle where workspaces live, each with its database. They can be repeated. */
  statements: { database: string; sql: string }[];
  /** The ids of workspaces that were erased since the restored time, and are back. */
  erased: string[];
  /** The ids of workspaces that have moved here since then, so that their records are in no database. */
  movedHere: string[];
}

/**
 * Finds where workspaces live, without a change. The directory in `DB`, as it was before the restore, decides.
 *
 * - A workspace that has moved away since then is back. Its rows are marked as left by a move, and deleted by the
 *   scheduled job.
 * - A workspace that has moved here since then has no records here. If it has a directory entry of then, the entry
 *   becomes the row of the workspace, so that its other rows can be put back.
 * - A workspace that was being moved then is unlocked, because no move was under way before the restore.
 * - A workspace that was erased since then is back, too. If its directory entry is missing, it gets one, in case it is
 *   to stay.
 *
 * @param noted the tables of the restored database, as they were before the restore.
 * @param restoredTo the restored time, in Unix milliseconds.
 */
export async function findPlacements(
  execute: Execute,
  database: string,
  noted: Tables,
  restoredTo: number,
): Promise<Placements> {
  const isDirectory = database === "DB";
  const found = await query(execute, database, SELECT_PLACES);
  const directory = isDirectory ? noted.workspaces : await query(execute, "DB", SELECT_PLACES);
  const homes = new Map(directory.map((row) => [row.id, String(row.database ?? "DB")]));
  const known = new Set(noted.workspaces.map(({ id }) => id));
  const statements: Placements["statements"] = isDirectory
    ? [{ database, sql: "DELETE FROM moves" }]
    : [];
  const erased: string[] = [];
  for (const row of found) {
    const id = String(row.id);
    const elsewhere = row.database;
    const home = homes.get(id);
    if (home === database) {
      if (elsewhere !== null || row.write_lock !== null)
        statements.push({ database, sql: unlock(id) });
    } else if (home !== undefined) {
      if (elsewhere === null) statements.push({ database, sql: markMoved(id, home) });
      else if (isDirectory && elsewhere !== home)
        statements.push({ database, sql: setHome(id, home) });
    }
    // In the directory, a workspace that lives elsewhere only has an entry.
    const isBack = isDirectory || elsewhere === null;
    if (isBack && !known.has(id) && !isNewer(row, restoredTo) && (home ?? database) === database) {
      erased.push(id);
      if (home === undefined && !isDirectory)
        statements.push({ database: "DB", sql: insertEntry(id, database) });
    }
  }
  return { statements, erased, movedHere: findMovedHere(noted, found, restoredTo) };
}

const SELECT_PLACES = "SELECT id, database, write_lock, created_at FROM workspaces";

/** Finds the workspaces that have moved to the database since the restored time. */
function findMovedHere(noted: Tables, found: Row[], restoredTo: number): string[] {
  const moves = noted.audit_trail.filter(({ method }) => method === "moveWorkspace");
  const moved = new Set(moves.map(({ workspace_id }) => workspace_id));
  const then = new Map(found.map((row) => [row.id, row]));
  const movedHere = noted.workspaces.filter((row) => {
    if (row.database !== null) return false;
    const entry = then.get(row.id);
    if (entry) return entry.database !== null;
    // Without an entry, a workspace that has not moved was created since then.
    return moved.has(row.id ?? null) || isOlder(row, restoredTo);
  });
  return movedHere.map(({ id }) => String(id));
}

/** Settles where workspaces live. */
export async function settlePlacements(
  execute: Execute,
  { statements }: Placements,
): Promise<void> {
  for (const { database, sql } of statements) await query(execute, database, sql);
}

/** Writes the statement that marks the rows that a workspace left when it moved. */
export function markMoved(workspaceId: string, home: string): string {
  return `UPDATE workspaces SET database = ${literal(home)}, write_lock = 'locked', move_id = 'restored' WHERE id = ${literal(workspaceId)}`;
}

/** Writes the statement that makes the row of a workspace that of one that lives here, and is not being moved. */
function unlock(workspaceId: string): string {
  return `UPDATE workspaces SET database = NULL, write_lock = NULL, move_id = NULL WHERE id = ${literal(workspaceId)}`;
}

/** Writes the statement that changes where a workspace lives, according to its directory entry. */
function setHome(workspaceId: string, home: string): string {
  return `UPDATE workspaces SET database = ${literal(home)} WHERE id = ${literal(workspaceId)}`;
}

/** Writes the statement that inserts a workspace into the directory. */
function insertEntry(workspaceId: string, database: string): string {
  return `INSERT INTO workspaces (id, database, name, admin_emails, created_at) VALUES (${literal(workspaceId)}, ${literal(database)}, '', '[]', 0) ON CONFLICT DO NOTHING`;
}
