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

/** SQL condition: the row comes after a page's start, and not after its end. */
export function isOnPage({ at, id }: Order): SQL {
  // Not `<`: SQLite would read the position's own row only to discard it.
  return sql`(${at}, ${id}) <= (${sql.placeholder("at")}, ${sql.placeholder("id")})
    AND (${at}, ${id}) >= (${sql.placeholder("endAt")}, ${sql.placeholder("endId")})`;
}

/** SQL condition for the rows of a list that hides some. @param isHidden selected under this name, too. */
export function includesHidden(isHidden: SQL): SQL {
  return sql`(${sql.placeholder("withHidden")} OR NOT ${isHidden})`;
}

/** An order for `orderBy`. */
export function newestFirst({ at, id }: Order): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** A query that can still be sorted. */
interface Sortable<Row> {
  orderBy(...by: SQL[]): {
    limit(rows: Placeholder): { offset(skipped: Placeholder): RowQuery<Row> };
  };
}

/** Rows of which a list may hide some. */
interface Listed {
  id: string;
  isHidden?: boolean;
}

/** How many rows a page examines that has to pass over hidden ones. */
export const EXAMINED_MAX = 1_000;

/**
 * Prepares the pages of a list: each reads the rows that it shows plus one. If one of these is hidden, the page
 * examines up to `EXAMINED_MAX` rows, and may be short, or empty, although there is a next one.
 *
 * @param rows selects the rows that are `isOnPage`, and `includesHidden` if the list hides some.
 */
export function preparePages<Row extends Listed>(order: Order, rows: RowQuery<Row>) {
  const sorted = (rows as unknown as Sortable<Row>).orderBy(...newestFirst(order));
  const page = prepared(sorted.limit(sql.placeholder("rows")).offset(sql.placeholder("skipped")));
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
  ): Promise<Listing<Row>> => {
    const asked = { ...values, ...startOf(after), ...toTheEnd, rows: limit + 1, skipped: 0 };
    const find = async (more: Record<string, unknown>) =>
      (await query(db, page({ ...asked, withHidden: 1, ...more }))) as Row[];
    const first = await find({});
    if (!first.some(({ isHidden }) => isHidden)) return toListing(first, limit, order);
    const [last] = await find({ rows: 1, skipped: EXAMINED_MAX - 1 });
    const end = last ? positionOf(last, order) : null;
    const shown = await find({ withHidden: 0, ...(end && { endAt: end.at, endId: end.id }) });
    const listing = toListing(shown, limit, order);
    return { items: listing.items, next: listing.next ?? end };
  };
}

const BEFORE_ALL: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

const toTheEnd = { endAt: Number.MIN_SAFE_INTEGER, endId: "" };

function startOf(after: Position | null): Position {
  return after ? { at: after.at, id: lastBefore(after.id) } : BEFORE_ALL;
}

/** A string that sorts before `id` but after every smaller id. */
function lastBefore(id: string): string {
  return `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}\uffff`;
}

/** Builds a page from the `limit + 1` rows read; the extra row only shows that there are more. */
export function toListing<Row extends object>(
  rows: Row[],
  limit: number,
  order: Order,
): Listing<Row> {
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  return { items, next: last && rows.length > limit ? positionOf(last, order) : null };
}

function positionOf(row: object, { at, id }: Order): Position {
  const fields = row as Record<string, unknown>;
  return { at: fields[fieldOf(at)] as number, id: fields[fieldOf(id)] as string };
}

/** The same page, with each item in another shape. */
export function mapItems<Row, Item>(
  { items, next }: Listing<Row>,
  toItem: (row: Row) => Item,
): Listing<Item> {
  return { items: items.map(toItem), next };
}
