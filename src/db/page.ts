import { type Column, desc, type Placeholder, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { PAGE_MAX_BYTES } from "../contract/limits.ts";
import { fieldOf } from "./builder.ts";
import { type Database, prepared, query, type RowQuery } from "./client.ts";

/*
 * Keyset pagination, newest first. A page starts after the position of the last item of the previous page, so rows that
 * are added in the meantime cause no gaps or repetitions.
 * A page of very large items is short (`PAGE_MAX_BYTES`).
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

/**
 * Prepares the query for a page of a list, and returns the function that reads one. The query reads one row more than
 * it shows. That of leads is:
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
  const sorted = (rows as unknown as Sortable<Row>).orderBy(...newestFirst(order));
  const select = prepared(sorted.limit(sql.placeholder("rows")));
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
  ): Promise<Page<Row>> => {
    const { at, id } = after ?? NEWEST;
    const found = (await query(db, select({ ...values, at, id, rows: limit + 1 }))) as Row[];
    return cutPage(found, limit, order, bytesOf);
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
