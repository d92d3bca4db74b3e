import { type Column, desc, type Placeholder, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { fieldOf } from "./builder.ts";
import { type Database, prepared, query, type RowQuery, type Statements } from "./client.ts";

/**
 * Maximum total size of the leads or runs on a page, which has at least one, as the database returns them:
 * leads in hexadecimal, so a response is half as large. Other items are small: a hundred of the largest
 * automations are 1.8 MB of JSON.
 */
const PAGE_MAX_BYTES = 2_000_000;

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
 * @param whole a prepared query for the rows that are `NAMED`, if they have a large part.
 */
export function preparePages<Row extends { id: string }>(
  order: Order,
  rows: RowQuery<Row>,
  whole?: Whole,
) {
  const sortable = rows as unknown as Sortable<Row>;
  const page = prepared(sortable.orderBy(...newestFirst(order)).limit(ROWS));
  return async (
    db: Database,
    values: Record<string, unknown>,
    request: PageRequest,
  ): Promise<Listing<Row>> => {
    const found = await query(db, page({ ...values, ...pageValues(request) }));
    const listing = toListing(found as Row[], request.limit, order);
    return whole ? readLargeParts(db, whole, values, listing, request.limit) : listing;
  };
}

/** Maximum number of rows to read. */
export const ROWS = sql.placeholder("rows");

/** The parameters of a prepared query for a page. */
export function pageValues({ limit, after }: PageRequest) {
  const { at, id } = after ?? BEFORE_ALL;
  return { at, id: after ? lastBefore(id) : id, rows: limit + 1, share: shareOf(limit) };
}

/*
 * Rows with a part that may be large. A running total in SQL would read every row three times. So the
 * query of a page returns the part only if it is no larger than a row's share of half a page, and
 * otherwise just its size; `readLargeParts` then reads those that the page has room for.
 */

/** A row with a large part, which is null if it is larger than its share. */
export interface Sized {
  id: string;
  /** The size of its large part, in bytes as the database returns it. */
  size: number;
}

type Whole = (values: Record<string, unknown>) => Statements<Pick<Sized, "id">[]>;

/** SQL expression: a large part, or null if it is larger than its share. @param size its size. */
export function ifSmall<T>(size: SQL, part: Column | SQL): SQL<T> {
  return sql<T>`CASE WHEN ${size} <= ${sql.placeholder("share")} THEN ${part} END`;
}

/**
 * The ids of the rows that `readLargeParts` reads. A CROSS JOIN of their table on `isNamed` makes SQLite look
 * each one up, rather than use another index.
 */
export const NAMED = sql`json_each(${sql.placeholder("ids")}) AS named`;

/** SQL condition: the row is one of `NAMED`. */
export function isNamed(id: Column): SQL {
  return sql`${id} = named.value`;
}

/**
 * Completes the rows of a page whose large part is missing. A row that was deleted in the meantime is
 * left out.
 *
 * @param whole a prepared query for the rows that are `NAMED`.
 */
export async function readLargeParts<Row extends Pick<Sized, "id">>(
  db: Database,
  whole: Whole,
  values: Record<string, unknown>,
  { items, next }: Listing<Row>,
  limit: number,
): Promise<Listing<Row>> {
  const isLarge = ({ size = 0 }: Partial<Sized>) => size > shareOf(limit);
  const ids = items.filter(isLarge).map(({ id }) => id);
  if (ids.length === 0) return { items, next };
  const read = await query(db, whole({ ...values, ids: JSON.stringify(ids) }));
  const found = new Map(read.map((row) => [row.id, row]));
  const complete = (row: Row) => {
    const rest = found.get(row.id);
    return rest ? { ...row, ...rest } : [];
  };
  return { items: items.flatMap((row) => (isLarge(row) ? complete(row) : row)), next };
}

function shareOf(limit: number): number {
  return Math.floor(PAGE_MAX_BYTES / 2 / (limit + 1));
}

const BEFORE_ALL: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

/** A string that sorts before `id` but after every smaller id. */
function lastBefore(id: string): string {
  return `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}\uffff`;
}

/**
 * Builds a page from the `limit + 1` rows read; the extra row only shows that there are more. The page
 * ends earlier if its large parts would be too large together.
 */
export function toListing<Row extends object>(
  rows: Row[],
  limit: number,
  { at, id }: Order,
): Listing<Row> {
  let bytes = 0;
  const end = rows.findIndex((row: Partial<Sized>, i) => {
    bytes += row.size ?? 0;
    return i === limit || (i > 0 && bytes > PAGE_MAX_BYTES);
  });
  const items = end < 0 ? rows : rows.slice(0, end);
  const last = items.at(-1) as Record<string, unknown> | undefined;
  if (end <= 0 || !last) return { items, next: null };
  return { items, next: { at: last[fieldOf(at)] as number, id: last[fieldOf(id)] as string } };
}

/** The same page, with each item in another shape. */
export function mapItems<Row, Item>(
  { items, next }: Listing<Row>,
  toItem: (row: Row) => Item,
): Listing<Item> {
  return { items: items.map(toItem), next };
}
