import { type Column, desc, type Placeholder, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { fieldOf } from "./builder.ts";
import { type Database, prepared, query, type RowQuery } from "./client.ts";

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

/** A list's order, newest first. Its rows have both columns as fields of the same names. */
export interface Order {
  at: Column;
  id: Column;
}

/** SQL condition: the row comes after the position from `pageValues`. */
export function isBehind({ at, id }: Order): SQL {
  // Not `<`: SQLite would read the position's own row only to discard it.
  return sql`(${at}, ${id}) <= (${sql.placeholder("at")}, ${sql.placeholder("id")})`;
}

/** An order for `orderBy`. */
export function newestFirst({ at, id }: Order): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** A query that can still be sorted. */
interface Sortable<Row> {
  orderBy(...by: SQL[]): { limit(rows: Placeholder): RowQuery<Row> };
}

/**
 * Prepares the pages of a list: each reads the rows that it shows plus one.
 *
 * @param rows selects the rows that are `isBehind`.
 */
export function preparePages<Row extends { id: string }>(order: Order, rows: RowQuery<Row>) {
  const sortable = rows as unknown as Sortable<Row>;
  const page = prepared(sortable.orderBy(...newestFirst(order)).limit(ROWS));
  return async (
    db: Database,
    values: Record<string, unknown>,
    request: PageRequest,
  ): Promise<Listing<Row>> => {
    const found = await query(db, page({ ...values, ...pageValues(request) }));
    return toListing(found as Row[], request.limit, order);
  };
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

/** Builds a page from the `limit + 1` rows read; the extra row only shows that there are more. */
export function toListing<Row extends object>(
  rows: Row[],
  limit: number,
  { at, id }: Order,
): Listing<Row> {
  const items = rows.slice(0, limit);
  const last = items.at(-1) as Record<string, unknown> | undefined;
  if (rows.length <= limit || !last) return { items, next: null };
  return { items, next: { at: last[fieldOf(at)] as number, id: last[fieldOf(id)] as string } };
}

/** The same page, with each item in another shape. */
export function mapItems<Row, Item>(
  { items, next }: Listing<Row>,
  toItem: (row: Row) => Item,
): Listing<Item> {
  return { items: items.map(toItem), next };
}
