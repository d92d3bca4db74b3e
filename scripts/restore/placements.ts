import { insertEntry, isNewer, markMoved, type Row, type Tables } from "./statements.ts";
import { type Execute, query } from "./tables.ts";

/** The workspaces of a restored database, according to the directory. */
interface Settled {
  /** The ids of workspaces that were erased since then, and are back. */
  erased: string[];
  /** The losses that cannot be repaired, a sentence each. */
  lost: string[];
}

/**
 * Settles where workspaces live. The directory in `DB`, as it was before the restore, decides.
 *
 * - A workspace that has moved away since then is back. Its rows are marked as left by a move, and deleted by the
 *   scheduled job.
 * - A workspace that was erased since then is back, too. If its directory entry is missing, it gets one, so that
 *   `eraseWorkspace` finds it.
 * - A workspace that has moved here since then has no records here.
 *
 * @param noted the tables of the restored database, as they were before the restore.
 * @param restoredTo the restored time, in Unix milliseconds.
 */
export async function settlePlacements(
  execute: Execute,
  database: string,
  noted: Tables,
  restoredTo: number,
): Promise<Settled> {
  const isDirectory = database === "DB";
  const found = await query(execute, database, SELECT_HOMES);
  const directory = isDirectory ? noted.workspaces : await query(execute, "DB", SELECT_HOMES);
  const homes = new Map(directory.map((row) => [row.id, row.database ?? "DB"]));
  const known = new Set(noted.workspaces.map(({ id }) => id));
  const erased: string[] = [];
  for (const row of found) {
    const { id, database: elsewhere } = row;
    const home = homes.get(id);
    // In the directory, a workspace that lives elsewhere only has an entry.
    const isBack = isDirectory || elsewhere === null;
    if (elsewhere === null && home !== undefined && home !== database)
      await query(execute, database, markMoved(String(id), String(home)));
    else if (
      isBack &&
      !known.has(id) &&
      !isNewer(row, restoredTo) &&
      (home === undefined || home === database)
    ) {
      erased.push(String(id));
      if (home === undefined && !isDirectory)
        await query(execute, "DB", insertEntry(String(id), database));
    }
  }
  return { erased, lost: movedHere(database, noted, found) };
}

const SELECT_HOMES = "SELECT id, database, created_at FROM workspaces";

/** Describes each workspace that has moved to the database since the restored time, in a sentence. */
function movedHere(database: string, noted: Tables, found: Row[]): string[] {
  const moves = noted.audit_trail.filter(({ method }) => method === "moveWorkspace");
  const moved = new Set(moves.map(({ workspace_id }) => workspace_id));
  const here = new Set(found.filter((row) => row.database === null).map(({ id }) => id));
  return noted.workspaces
    .filter(({ id, ...row }) => row.database === null && moved.has(String(id)) && !here.has(id))
    .map(
      ({ id }) =>
        `${id} has moved to ${database} since then, and its records are in no database. Undo the restore and choose a time after the move, or let the platform report them all again.`,
    );
}
