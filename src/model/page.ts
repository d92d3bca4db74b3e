import { type Column, desc, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { type Database, query, type Statements } from "../db/client.ts";

/** A client's request for a page: at most `limit` items, older than `after`. */
export interface PageRequest {
  limit: number;
  after: Position | null;
}

/** The items for a `PageRequest`. */
export interface Listing<Item> {
  items: Item[];
  /** Where the next page begins; null if there is none. */
  next: Position | null;
}

/*
 * Parts of a prepared query for a page, newest first by (`at`, `id`). It reads the rows behind the
 * position from `pageValues`, one more than is shown.
 */

/** SQL condition for the rows of a page. */
export function isBehind(at: Column, id: Column): SQL {
  // Not `<`: SQLite would read the position's own row only to discard it.
  return sql`(${at}, ${id}) <= (${sql.placeholder("at")}, ${sql.placeholder("id")})`;
}

/** The sort order of a page. */
export function newestFirst(at: Column, id: Column): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** Maximum number of rows to read. */
export const ROWS = sql.placeholder("rows");

/** The parameters of a prepared query for a page. */
export function pageValues({ limit, after }: PageRequest) {
  const { at, id } = after ?? BEFORE_ALL;
  return { at, id: after ? lastBefore(id) : id, rows: limit + 1 };
}

const BEFORE_ALL: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

/** A string that sorts before `id` but after every smaller id. */
function lastBefore(id: string): string {
  return `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}\uffff`;
}

/** A row's position in a list sorted by creation time. */
export function byCreation({ createdAt, id }: { createdAt: number; id: string }): Position {
  return { at: createdAt, id };
}

/** Lists one page with a prepared query. */
export async function listPage<Row, Item>(
  db: Database,
  page: (values: Record<string, unknown>) => Statements<Row[]>,
  values: Record<string, unknown>,
  request: PageRequest,
  position: (row: Row) => Position,
  toItem: (row: Row) => Item,
): Promise<Listing<Item>> {
  const found = await query(db, page({ ...values, ...pageValues(request) }));
  return toListing(found, request.limit, position, toItem);
}

/** Builds a page from the `limit + 1` rows read; the extra row only shows that there are more. */
export function toListing<Row, Item>(
  rows: Row[],
  limit: number,
  position: (row: Row) => Position,
  toItem: (row: Row) => Item,
): Listing<Item> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  const next = rows.length > limit && last !== undefined ? position(last) : null;
  return { items: shown.map(toItem), next };
}
