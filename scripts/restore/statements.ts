/* The SQL that puts back rows that a restored database has lost. */

/** A row of D1, by column. */
export type Row = Record<string, string | number | null>;

/** How much the clocks differ, at most, that time stamps come from. */
export const CLOCKS_DIFFER_MS = 60_000;

/**
 * Whether a row was created after the restored time, so that the restore cannot have brought it back. The API stays up
 * during a restore, so people may create workspaces and subscriptions after the tables were noted.
 *
 * @param restoredTo Unix milliseconds.
 */
export function isNewer({ created_at }: Row, restoredTo: number): boolean {
  return Number(created_at) > restoredTo + CLOCKS_DIFFER_MS;
}

/** The tables that a restore puts back, so that foreign keys hold: a table stands after those it refers to. */
export const TABLES = ["workspaces", "api_keys", "subscriptions", "audit_trail"] as const;
type Table = (typeof TABLES)[number];
export type Tables = Record<Table, Row[]>;

/** The columns that a restore puts back in existing rows. Calls of the Platform API restore the others. */
const KEPT_COLUMNS: Record<Table, string[]> = {
  // The encryption of a data key changes when the encryption key is rotated.
  workspaces: ["name", "admin_emails", "webhooks_max", "sealed_data_key"],
  api_keys: ["requests_per_window", "expires_at", "last_used_at"],
  subscriptions: [
    ...["url", "description", "header_names", "sealed_headers"],
    ...["sealed_secret", "earlier_secrets", "rotated_at"],
  ],
  audit_trail: [],
};

/** Columns that are not put back: another subscription may have taken over the key. */
const OMITTED = ["idempotency_key", "requested"];

/** Maximum length of a statement; D1's limit is 100,000 bytes. */
const STATEMENT_MAX = 50_000;

/** Finds the rows of a table that are missing, or that differ in the columns to put back. */
export function rowsToPutBack(table: Table, noted: Tables, found: Tables): Row[] {
  const present = new Map(found[table].map((row) => [row.id, row]));
  return noted[table].filter((row) => {
    if (row.deleted_at) return false;
    const now = present.get(row.id);
    // A workspace that lives elsewhere only has an entry here, and its remaining rows are locked.
    if (now && table === "workspaces" && row.database !== null) return false;
    return !now || KEPT_COLUMNS[table].some((column) => row[column] !== now[column]);
  });
}

/** Writes statements that insert rows, or update the columns to put back. */
export function putBackStatements(table: Table, rows: Row[]): string[] {
  const [first] = rows;
  if (!first) return [];
  const columns = Object.keys(first).filter((column) => !OMITTED.includes(column));
  const updates = KEPT_COLUMNS[table].map((column) => `${column} = excluded.${column}`);
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

/** Writes a value as an SQL literal. */
function literal(value: string | number | null): string {
  if (value === null) return "NULL";
  return typeof value === "number" ? String(value) : `'${value.replaceAll("'", "''")}'`;
}
/** Writes the statement that marks the rows that a workspace left when it moved. */
export function markMoved(workspaceId: string, home: string): string {
  return `UPDATE workspaces SET database = ${literal(home)}, write_lock = 'locked', move_id = 'restored' WHERE id = ${literal(workspaceId)}`;
}

/** Writes the statement that inserts a workspace into the directory, so that it can be erased. */
export function insertEntry(workspaceId: string, database: string): string {
  return `INSERT INTO workspaces (id, database, name, admin_emails, created_at) VALUES (${literal(workspaceId)}, ${literal(database)}, '', '[]', 0)`;
}

/**
 * Writes the statement that marks all keys as used. A key may have been used for the first time while the database went
 * back, which the row has lost. Changes of a key that was never used are not sent to its gate, which would then admit a
 * revoked key for up to an hour.
 */
export const MARK_KEYS_USED =
  "UPDATE api_keys SET last_used_at = created_at WHERE last_used_at IS NULL";
