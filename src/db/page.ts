import { type Column, desc, type Placeholder, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { PAGE_MAX_BYTES } from "../contract/limits.ts";
import { fieldOf } from "./builder.ts";
import { type Database, prepared, query, type RowQuery } from "./client.ts";

/*
 * Keyset pagination, newest first. A page starts after the position of the last item of the previous page, so rows that
 * are added in the meantime cause no gaps or repetitions.
 *
 * A list may hide rows, such as those of a removed automation. A page then examines up to `PAGE_EXAMINED_MAX` rows. So it
 * can be short, or empty, although there is a next one. A page of very large items is short, too (`PAGE_MAX_BYTES`).
 */

/** A request for a page: at most `limit` items, older than `after`. */
export interface PageRequest {
  limit: number;
  after: Position | null;
}

/** The page of items that a `PageRequest` selects. */
export interface Page<Item> {
  items: Item[];
  /** Where the next page begins; null if there is none. */
  next: Position | null;
}

/** The order of a list, newest first. Its rows have both columns as fields of the same names. */
export interface Order {
  at: Column;
  id: Column;
}

/** SQL condition: the row is older than the start of the page, which has the placeholders `at` and `id`. */
export function isOnPage({ at, id }: Order): SQL {
  return sql`(${at}, ${id}) < (${sql.placeholder("at")}, ${sql.placeholder("id")})`;
}

/** Returns the arguments of `orderBy` for an order. */
export function newestFirst({ at, id }: Order): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** A query that can still be sorted. */
interface Sortable<Row> {
  orderBy(...by: SQL[]): Limitable<Row>;
}

interface Limitable<Row> {
  limit(rows: Placeholder): RowQuery<Row>;
}

const NEWEST: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

/** Number of rows that each further query for a page reads, if rows are hidden. */
const EXAMINED_AT_ONCE = 500;
/** Number of rows after which a page ends, even if it is short. */
export const PAGE_EXAMINED_MAX = 5_000;

/**
 * Prepares the query for a page of a list, and returns the function that reads one. Usually, a page is one query, which
 * reads one row more than it shows. That of leads is:
 *
 *     SELECT … FROM leads WHERE workspace_id = :workspaceId AND (created_at, id) < (:at, :id)
 *     ORDER BY created_at DESC, id DESC LIMIT :rows
 *
 * The order needs an index that begins with the columns of the other conditions, such as `leads_newest`. If rows are
 * hidden, the same query continues behind them.
 *
 * The function fills in the placeholders `at` and `id` of `isOnPage`, and `rows` of the limit, which is added here. Its
 * caller passes the values of all others, such as `workspaceId`, and may say which rows are hidden.
 *
 * @param query selects the rows with the condition `isOnPage`, without order and limit.
 * @param bytesOf returns the approximate size of an item in bytes of JSON.
 */
export function preparePage<Row extends object>({
  order,
  query: rows,
  bytesOf = jsonBytes,
}: {
  order: Order;
  query: RowQuery<Row>;
  bytesOf?: (row: Row) => number;
}) {
  const sorted = (rows as unknown as Sortable<Row>).orderBy(...newestFirst(order));
  const select = prepared(sorted.limit(sql.placeholder("rows")));
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
    isHidden: (row: Row) => boolean = () => false,
  ): Promise<Page<Row>> => {
    const shown: Row[] = [];
    let examined = 0;
    let position = after ?? NEWEST;
    let asked = limit + 1;
    for (;;) {
      const { at, id } = position;
      const found = (await query(db, select({ ...values, at, id, rows: asked }))) as Row[];
      shown.push(...found.filter((row) => !isHidden(row)));
      examined += found.length;
      const last = found.at(-1);
      if (shown.length > limit || found.length < asked || !last)
        return cutPage(shown, limit, order, bytesOf);
      position = positionOf(last, order);
      if (examined >= PAGE_EXAMINED_MAX) {
        const { items, next } = cutPage(shown, limit, order, bytesOf);
        return { items, next: next ?? position };
      }
      asked = EXAMINED_AT_ONCE;
    }
  };
}

/**
 * Makes a page of the first `limit` rows; a further one only shows that there are more. The page ends earlier if its
 * items take more than `PAGE_MAX_BYTES`, but has at least one item.
 */
export function cutPage<Row extends object>(
  rows: Row[],
  limit: number,
  order: Order,
  bytesOf: (row: Row) => number = jsonBytes,
): Page<Row> {
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
  { items, next }: Page<Row>,
  toItem: (row: Row) => Item,
): Page<Item> {
  return { items: items.map(toItem), next };
}
