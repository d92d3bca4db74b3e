import type { Placements } from "./placements.ts";
import { isOlder, literal, type Row, type Table, type Tables } from "./tables.ts";

/** The tables that a restore compares. */
export interface Compared {
  /** The tables before the restore. */
  noted: Tables;
  /** The restored database, as it is now. */
  found: Tables;
  placements: Placements;
  /** The restored time, in Unix milliseconds. */
  restoredTo: number;
  /** Whether rows of settings stay as of then, because what people have changed since then is the damage. */
  skipsSettings: boolean;
}

/**
 * The columns that a restore puts back in existing rows. Calls of the Platform API restore the others. A new setting of
 * a workspace, a key or a webhook belongs here, so that restoring a database does not undo it.
 */
const KEPT: Record<Table, string[]> = {
  // The encryption of a data key changes when the encryption key is rotated. `resealSecrets` is called again then.
  workspaces: ["name", "admin_emails", "webhooks_max", "sealed_data_key"],
  api_keys: ["requests_per_window", "expires_at", "last_used_at"],
  subscriptions: [
    ...["url", "header_names", "sealed_headers", "description"],
    ...["sealed_secret", "earlier_secrets", "rotated_at"],
  ],
  audit_trail: [],
};

/** Columns that are not put back: another subscription may have taken over the key. */
const OMITTED = ["idempotency_key", "requested"];

/** Maximum length of a statement; D1's limit is 100,000 bytes. */
const STATEMENT_MAX = 50_000;

/** Finds the rows of a table that are missing, or that differ in the columns to put back. */
export function rowsToPutBack(table: Table, compared: Compared): Row[] {
  const isOver = table === "audit_trail" ? () => false : findOver(table, compared);
  const present = new Map(compared.found[table].map((row) => [row.id, row]));
  return compared.noted[table].filter((row) => {
    const now = present.get(row.id);
    if (isOver(row, now)) return false;
    return !now || KEPT[table].some((column) => row[column] !== now[column]);
  });
}

/**
 * Returns a function that tells whether a noted row is left as it is. Its second argument is the row as it is now, or
 * undefined if it is missing. A workspace that has moved here has no settings as of then, so it gets those of now even
 * if settings are skipped. Its keys are in the directory, and are as of then.
 */
function findOver(
  table: Exclude<Table, "audit_trail">,
  { found, placements, restoredTo, skipsSettings }: Compared,
): (row: Row, now: Row | undefined) => boolean {
  const databases = new Map(found.workspaces.map(({ id, database }) => [id, database]));
  const movedHere = new Set<Row[string]>(placements.movedHere);
  return (row, now) => {
    const workspaceId = (table === "workspaces" ? row.id : row.workspace_id) ?? null;
    const hasMoved = movedHere.has(workspaceId);
    // All keys are in the directory, wherever their workspaces live.
    if (skipsSettings && (table === "api_keys" || !hasMoved)) return true;
    if (row.deleted_at) return true;
    // An older row was there when the database had gone back, so it has been deleted since then.
    if (!now && isOlder(row, restoredTo) && !hasMoved) return true;
    // A workspace that lives elsewhere only has an entry here, and its remaining rows are locked.
    return table !== "api_keys" && (databases.get(workspaceId) ?? null) !== null;
  };
}

/** Writes statements that insert rows, or update the columns to put back. */
export function putBackStatements(table: Table, rows: Row[]): string[] {
  const [first] = rows;
  if (!first) return [];
  const columns = Object.keys(first).filter((column) => !OMITTED.includes(column));
  const updates = KEPT[table].map((column) => `${column} = excluded.${column}`);
  const start = `INSERT INTO ${table} (${columns.map((column) => `"${column}"`).join(", ")}) VALUES `;
  const end = ` ON CONFLICT DO ${updates.length > 0 ? `UPDATE SET ${updates.join(", ")}` : "NOTHING"}`;
  const statements: string[] = [];
  let values: string[] = [];
  let length = 0;
  const flush = () => {
    if (values.length > 0) statements.push(`${start}${values.join(", ")}${end}`);
    values = [];
    length = 0;
  };
  for (const row of rows) {
    const value = `(${columns.map((column) => literal(row[column] ?? null)).join(", ")})`;
    if (length + value.length > STATEMENT_MAX) flush();
    length += value.length;
    values.push(value);
  }
  flush();
  return statements;
}

/**
 * Writes the statement that marks all keys as used. A key may have been used for the first time while the database went
 * back, which the row has lost. Changes of a key that was never used are not sent to its gate, which would then admit a
 * revoked key for up to an hour.
 */
export const MARK_KEYS_USED =
  "UPDATE api_keys SET last_used_at = created_at WHERE last_used_at IS NULL";
