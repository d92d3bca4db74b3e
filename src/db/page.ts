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
  limit(rows: Placeholder | number): RowQuery<Row> & { offset(skipped: number): RowQuery<Row> };
}

function sorted<Row>(rows: RowQuery<Row>, order: Order): Limitable<Row> {
  return (rows as unknown as Sortable<Row>).orderBy(...newestFirst(order));
}

const NEWEST: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };
const OLDEST: Position = { at: Number.MIN_SAFE_INTEGER, id: "" };

/**
 * Prepares the query for a page of a list, and returns the function that reads one. A page is one query, which reads one
 * row more than it shows. That of leads is:
 *
 *     SELECT … FROM leads WHERE workspace_id = :workspaceId AND (created_at, id) < (:at, :id)
 *     ORDER BY created_at DESC, id DESC LIMIT :rows
 *
 * The order needs an index that begins with the columns of the other conditions, such as `leads_newest`.
 *
 * The function fills in the placeholders `at` and `id` of `isOnPage`, and `rows` of the limit, which is added here. Its
 * caller passes the values of all others, such as `workspaceId`.
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
  const page = prepared(sorted(rows, order).limit(sql.placeholder("rows")));
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
  ): Promise<Page<Row>> => {
    const { at, id } = after ?? NEWEST;
    const found = await query(db, page({ ...values, at, id, rows: limit + 1 }));
    return cutPage(found as Row[], limit, order, bytesOf);
  };
}

/** Maximum rows that a page examines if some are hidden. */
export const PAGE_EXAMINED_MAX = 10_000;

/**
 * Prepares the queries for a page of a list that hides rows, like `preparePage`. Usually, a page is one query for the
 * rows that it shows and one more row. If one of these is hidden, two more queries find the last row to examine, and the
 * rows to show up to there.
 *
 * @param isHidden the SQL condition that the list selects as `isHidden`.
 * @param selectRows selects the rows that meet a condition.
 */
export function preparePageWithHidden<Row extends { isHidden: boolean }>(
  order: Order,
  isHidden: SQL,
  selectRows: (condition: SQL) => RowQuery<Row>,
) {
  const examined = () => sorted(selectRows(isOnPage(order)), order);
  const page = prepared(examined().limit(sql.placeholder("rows")));
  const lastExamined = prepared(
    examined()
      .limit(1)
      .offset(PAGE_EXAMINED_MAX - 1),
  );
  const isUpToEnd = sql`(${order.at}, ${order.id}) >= (${sql.placeholder("endAt")}, ${sql.placeholder("endId")})`;
  const isShown = sql`${isOnPage(order)} AND ${isUpToEnd} AND NOT ${isHidden}`;
  const shownRows = prepared(sorted(selectRows(isShown), order).limit(sql.placeholder("rows")));
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
  ): Promise<Page<Row>> => {
    const { at, id } = after ?? NEWEST;
    const bound = { ...values, at, id };
    const rows = limit + 1;
    const found = (await query(db, page({ ...bound, rows }))) as Row[];
    if (!found.some((row) => row.isHidden)) return cutPage(found, limit, order);
    const [last] = (await query(db, lastExamined(bound))) as Row[];
    const end = last ? positionOf(last, order) : null;
    const { at: endAt, id: endId } = end ?? OLDEST;
    const shown = (await query(db, shownRows({ ...bound, endAt, endId, rows }))) as Row[];
    const { items, next } = cutPage(shown, limit, order);
    return { items, next: next ?? end };
  };
}

/**
 * Makes a page of `limit + 1` rows; the extra row only shows that there are more. The page ends earlier if its items
 * take more than `PAGE_MAX_BYTES`, but has at least one item.
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
