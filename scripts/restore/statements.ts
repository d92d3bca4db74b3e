import { type Compared, type Decision, type Decisions, findLaterDecisions } from "./decisions.ts";

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

/** Whether a row was created before the restored time. */
export function isOlder({ created_at }: Row, restoredTo: number): boolean {
  return Number(created_at) < restoredTo - CLOCKS_DIFFER_MS;
}

/** The tables that a restore puts back, so that foreign keys hold: a table stands after those it refers to. */
export const TABLES = ["workspaces", "api_keys", "subscriptions", "audit_trail"] as const;
type Table = (typeof TABLES)[number];
export type Tables = Record<Table, Row[]>;

/** Columns that a restore puts back in existing rows, with the decisions that change them. */
interface Kept {
  columns: string[];
  changedBy: Decision[];
}

/** The columns that a restore puts back in existing rows. Calls of the Platform API restore the others. */
const KEPT: Record<Table, Kept[]> = {
  workspaces: [
    { columns: ["name", "admin_emails", "webhooks_max"], changedBy: ["updateWorkspace"] },
    // Only its encryption changes, when the encryption key is rotated. `resealSecrets` is called again then.
    { columns: ["sealed_data_key"], changedBy: [] },
  ],
  api_keys: [
    { columns: ["requests_per_window"], changedBy: ["updateApiKey"] },
    { columns: ["expires_at"], changedBy: ["rollApiKey"] },
    { columns: ["last_used_at"], changedBy: [] },
  ],
  subscriptions: [
    // Headers are for the origin of the URL, so both stay together.
    {
      columns: ["url", "header_names", "sealed_headers"],
      changedBy: ["updateWebhook.url", "updateWebhook.headers"],
    },
    { columns: ["description"], changedBy: ["updateWebhook.description"] },
    {
      columns: ["sealed_secret", "earlier_secrets", "rotated_at"],
      changedBy: ["rotateWebhookSecret", "endSecretOverlap"],
    },
  ],
  audit_trail: [],
};

/** Columns that are not put back: another subscription may have taken over the key. */
const OMITTED = ["idempotency_key", "requested"];

/** Maximum length of a statement; D1's limit is 100,000 bytes. */
const STATEMENT_MAX = 50_000;

/**
 * Finds the rows of a table that are missing, or that differ in the columns to put back. What people have decided since
 * the tables were noted stays as it is.
 */
export function rowsToPutBack(table: Table, compared: Compared): Row[] {
  const { noted, found } = compared;
  const later = findLaterDecisions(compared);
  const isOver = table === "audit_trail" ? () => false : findOver(table, compared, later);
  const present = new Map(found[table].map((row) => [row.id, row]));
  return noted[table].flatMap((row) => {
    const now = present.get(row.id);
    if (isOver(row, now)) return [];
    if (!now) return [row];
    const kept = { ...row };
    for (const { columns, changedBy } of KEPT[table])
      if (later.has(row.id, changedBy))
        for (const column of columns) kept[column] = now[column] ?? null;
    return keptColumns(table).some((column) => kept[column] !== now[column]) ? [kept] : [];
  });
}

const keptColumns = (table: Table) => KEPT[table].flatMap(({ columns }) => columns);

/**
 * Returns a function that tells whether a noted row is left as it is. Its second argument is the row as it is now, or
 * undefined if it is missing. A workspace that has moved here has no settings as of then, so it gets those of now even
 * if settings are skipped. Its keys are in the directory, and are as of then.
 */
function findOver(
  table: Exclude<Table, "audit_trail">,
  { found, placements, restoredTo, skipsSettings }: Compared,
  later: Decisions,
): (row: Row, now: Row | undefined) => boolean {
  const databases = new Map(found.workspaces.map(({ id, database }) => [id, database]));
  const movedHere = new Set<Row[string]>(placements.movedHere);
  return (row, now) => {
    const workspaceId = (table === "workspaces" ? row.id : row.workspace_id) ?? null;
    if (later.has(workspaceId, ["eraseWorkspace"])) return true;
    // All keys are in the directory, wherever their workspaces live.
    if (table === "api_keys") return skipsSettings;
    if (skipsSettings && !movedHere.has(workspaceId)) return true;
    // A workspace that lives elsewhere only has an entry here, and its remaining rows are locked.
    if ((databases.get(workspaceId) ?? null) !== null) return true;
    if (table === "workspaces") return false;
    if (row.deleted_at !== null) return true;
    if (now) return now.deleted_at !== null;
    // An older subscription was there when the database had gone back, so it has been deleted since then. The audit
    // trail does not have what clients of the API delete.
    return isOlder(row, restoredTo) && !movedHere.has(workspaceId);
  };
}

/** Writes statements that insert rows, or update the columns to put back. */
export function putBackStatements(table: Table, rows: Row[]): string[] {
  const [first] = rows;
  if (!first) return [];
  const columns = Object.keys(first).filter((column) => !OMITTED.includes(column));
  const updates = keptColumns(table).map((column) => `${column} = excluded.${column}`);
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

/** Writes the statement that makes the row of a workspace that of one that lives here, and is not being moved. */
export function unlock(workspaceId: string): string {
  return `UPDATE workspaces SET database = NULL, write_lock = NULL, move_id = NULL WHERE id = ${literal(workspaceId)}`;
}

/** Writes the statement that changes where a workspace lives, according to its directory entry. */
export function setHome(workspaceId: string, home: string): string {
  return `UPDATE workspaces SET database = ${literal(home)} WHERE id = ${literal(workspaceId)}`;
}

/** Writes the statement that inserts a workspace into the directory, so that it can be erased. */
export function insertEntry(workspaceId: string, database: string): string {
  return `INSERT INTO workspaces (id, database, name, admin_emails, created_at) VALUES (${literal(workspaceId)}, ${literal(database)}, '', '[]', 0) ON CONFLICT DO NOTHING`;
}

/**
 * Writes the statement that marks all keys as used. A key may have been used for the first time while the database went
 * back, which the row has lost. Changes of a key that was never used are not sent to its gate, which would then admit a
 * revoked key for up to an hour.
 */
export const MARK_KEYS_USED =
  "UPDATE api_keys SET last_used_at = created_at WHERE last_used_at IS NULL";

/** The row that a database has until Time Travel takes it back: its name in `sweep_positions`. */
const markOf = (time: string) => literal(`restore ${time}`);

/**
 * Writes the statement that marks a database before it goes back. Time Travel removes the mark, so a restore that was
 * interrupted knows whether the database has gone back.
 *
 * @param time the restored time, which is before the mark.
 */
export function markPresent(time: string): string {
  return `INSERT INTO sweep_positions (part, position) VALUES (${markOf(time)}, '') ON CONFLICT DO NOTHING`;
}

/** Writes the statement that finds the mark of `markPresent`. */
export function findMark(time: string): string {
  return `SELECT part FROM sweep_positions WHERE part = ${markOf(time)}`;
}
