import { type Column, desc, type Placeholder, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { PAGE_MAX_BYTES } from "../contract/limits.ts";
import { fieldOf } from "./builder.ts";
import { type Database, prepared, query, type RowQuery } from "./client.ts";

/*
 * Keyset pagination, newest first. A page starts after the position of the last item of the previous page, so rows that
 * are added in the meantime cause no gaps or repetitions.
 *
 * A list may hide rows, such as those of a removed automation. A page then examines up to `PAGE_EXAMINED_MAX` rows. Only
 * beyond that can it be short, or empty, although there is a next one.
 */

/** A request for a page: at most `limit` items, older than `after`. */
export interface PageRequest {
  limit: number;
  after: Position | null;
}

/** A page of items, in answer to a `PageRequest`. */
export interface Listing<Item> {
  items: Item[];
  /** Where the next page begins; null if there is none. */
  next: Position | null;
}

/** The order of a list, newest first. Its rows have both columns as fields of the same names. */
export interface Order {
  at: Column;
  id: Column;
}

/** SQL condition: the row is older than the start of the page, and not older than its end. */
export function isOnPage({ at, id }: Order): SQL {
  return sql`(${at}, ${id}) < (${sql.placeholder("at")}, ${sql.placeholder("id")})
    AND (${at}, ${id}) >= (${sql.placeholder("endAt")}, ${sql.placeholder("endId")})`;
}

/** SQL condition for a list that hides rows. @param isHidden the condition that the list selects as `isHidden`. */
export function includesHidden(isHidden: SQL): SQL {
  return sql`(${sql.placeholder("withHidden")} OR NOT ${isHidden})`;
}

/** Returns the arguments of `orderBy` for an order. */
export function newestFirst({ at, id }: Order): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** A query that can still be sorted. */
interface Sortable<Row> {
  orderBy(...by: SQL[]): {
    limit(rows: Placeholder): { offset(skipped: Placeholder): RowQuery<Row> };
  };
}

/** A row of a list, which may be hidden. */
interface Listed {
  id: string;
  isHidden?: boolean;
}

/** Maximum rows that a page examines if some are hidden. */
export const PAGE_EXAMINED_MAX = 10_000;

const NEWEST: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };
const OLDEST: Position = { at: Number.MIN_SAFE_INTEGER, id: "" };

/**
 * Prepares the pages of a list. Usually, a page is one query for the rows that it shows and one more. If one of these is
 * hidden, two more queries find the last row to examine, and the rows to show up to there.
 *
 * @param rows selects the rows with the conditions `isOnPage` and, if the list hides some, `includesHidden`.
 * @param bytesOf returns the approximate size of an item in bytes of JSON.
 */
export function preparePages<Row extends Listed>(
  order: Order,
  rows: RowQuery<Row>,
  bytesOf: (row: Row) => number = jsonBytes,
) {
  const sorted = (rows as unknown as Sortable<Row>).orderBy(...newestFirst(order));
  const page = prepared(sorted.limit(sql.placeholder("rows")).offset(sql.placeholder("skipped")));
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
  ): Promise<Listing<Row>> => {
    const start = after ?? NEWEST;
    const readRows = (end: Position, withHidden: boolean, count: number, skipped: number) =>
      query(
        db,
        page({
          ...values,
          at: start.at,
          id: start.id,
          endAt: end.at,
          endId: end.id,
          withHidden: withHidden ? 1 : 0,
          rows: count,
          skipped,
        }),
      ) as Promise<Row[]>;

    const found = await readRows(OLDEST, true, limit + 1, 0);
    if (!found.some(({ isHidden }) => isHidden)) return toListing(found, limit, order, bytesOf);
    const [last] = await readRows(OLDEST, true, 1, PAGE_EXAMINED_MAX - 1);
    const end = last ? positionOf(last, order) : null;
    const shown = await readRows(end ?? OLDEST, false, limit + 1, 0);
    const { items, next } = toListing(shown, limit, order, bytesOf);
    return { items, next: next ?? end };
  };
}

/**
 * Makes a page of `limit + 1` rows; the extra row only shows that there are more. The page ends earlier if its items
 * take more than `PAGE_MAX_BYTES`, but has at least one item.
 */
export function toListing<Row extends object>(
  rows: Row[],
  limit: number,
  order: Order,
  bytesOf: (row: Row) => number = jsonBytes,
): Listing<Row> {
  let bytes = 0;
  let count = 0;
  for (const row of rows.slice(0, limit)) {
    bytes += bytesOf(row);
    if (bytes > PAGE_MAX_BYTES && count > 0) break;
    count++;
  }
  const items = rows.slice(0, count);
  const last = items.at(-1);
  return { items, next: last && rows.length > count ? positionOf(last, order) : null };
}

const encoder = new TextEncoder();

function jsonBytes(row: object): number {
  return encoder.encode(JSON.stringify(row)).length;
}

function positionOf(row: object, { at, id }: Order): Position {
  const fields = row as Record<string, unknown>;
  return { at: fields[fieldOf(at)] as number, id: fields[fieldOf(id)] as string };
}

/** Maps the items of a page. */
export function mapItems<Row, Item>(
  { items, next }: Listing<Row>,
  toItem: (row: Row) => Item,
): Listing<Item> {
  return { items: items.map(toItem), next };
}
