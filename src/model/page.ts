import { type Column, desc, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { type Database, query, type Statements } from "../db/client.ts";

/** What a client asks of a list: at most `limit` items, those older than `after`. */
export interface PageRequest {
  limit: number;
  after: Position | null;
}

/** What a list holds for a `PageRequest`. */
export interface Listing<Item> {
  items: Item[];
  /** Where the next page begins; null when there are no more. */
  next: Position | null;
}

/*
 * The parts of a prepared query for a page, newest first by (`at`, `id`): it reads what is behind the
 * position that `pageValues` gives, and one row more than is shown.
 */

/** Condition on the rows of a page. */
export function isBehind(at: Column, id: Column): SQL {
  // Not `<`: SQLite would look up the row of the position itself, and drop it.
  return sql`(${at}, ${id}) <= (${sql.placeholder("at")}, ${sql.placeholder("id")})`;
}

/** The order of a page. */
export function newestFirst(at: Column, id: Column): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** As many rows as a page reads at the most. */
export const ROWS = sql.placeholder("rows");

/** The values of a prepared query for a page. */
export function pageValues({ limit, after }: PageRequest) {
  const { at, id } = after ?? BEFORE_ALL;
  return { at, id: after ? lastBefore(id) : id, rows: limit + 1 };
}

const BEFORE_ALL: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

/** A text between `id` and all the ids before it. */
function lastBefore(id: string): string {
  return `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}\uffff`;
}

/** The position of a row in a list by the time of creation. */
export function byCreation({ createdAt, id }: { createdAt: number; id: string }): Position {
  return { at: createdAt, id };
}

/** Lists one page by a prepared query for pages. */
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

/** What is shown of the `limit + 1` rows that were read: the last one only tells that there is more. */
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
