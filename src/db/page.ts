import { type Column, desc, type Placeholder, type SQL, type Subquery, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type { Position } from "../contract/cursor.ts";
import { PAGE_MAX_BYTES, RECORD_MAX_BYTES } from "../contract/limits.ts";
import { fieldOf, qb } from "./builder.ts";
import { type Database, prepared, query, type RowQuery, readAs } from "./client.ts";

/*
 * Keyset pagination, newest first. A page starts after the position of the last item of the previous page, so rows that
 * are added in the meantime cause no gaps or repetitions. A page of very large items is short (`PAGE_MAX_BYTES`).
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

/** The order of a list, newest first. Its rows have both columns under the names of the table's fields (`fieldOf`). */
interface Order {
  at: Column;
  id: Column;
}

/** SQL condition: the row is older than the start of the page, which has the placeholders `at` and `id`. */
export function isOnPage({ at, id }: Order): SQL {
  return sql`(${at}, ${id}) < (${sql.placeholder("at")}, ${sql.placeholder("id")})`;
}

/** Returns the arguments of `orderBy` for an order. */
export function sortNewest({ at, id }: Order): [SQL, SQL] {
  return [desc(at), desc(id)];
}

/** A query that can still be sorted. */
interface Sortable<Row> {
  orderBy(...by: SQL[]): Limitable<Row>;
}

interface Limitable<Row> {
  limit(rows: Placeholder): RowQuery<Row> & Nameable;
}

/** A query that can be the subquery of another one, with its columns. */
interface Nameable {
  as(name: string): Subquery & Columns;
}

type Columns = Record<string, SQLiteColumn>;

const NEWEST: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

/**
 * Maximum items that fit on any page, however large they are: 32, because no item of a list is larger than a record. A page
 * of up to this many items, such as the default one, is read without `boundBytes`, which adds up sizes in a window function.
 * For that, SQLite copies the rows to temporary tables, and each row is billed as read up to four times.
 */
const FEW = PAGE_MAX_BYTES / RECORD_MAX_BYTES;

/**
 * Prepares the two queries for a page of a list, and returns the function that reads one. Both return one row more than the
 * page shows. One is for pages of up to `FEW` items, which always fit; the other ends a page at half a megabyte
 * (`boundBytes`). For leads, they are:
 *
 *     SELECT … FROM leads WHERE workspace_id = :workspaceId AND (created_at, id) < (:at, :id)
 *     ORDER BY created_at DESC, id DESC LIMIT :rows
 *
 *     SELECT …, page_bytes FROM
 *       (SELECT …, sum(BYTES) OVER (ORDER BY created_at DESC, id DESC) AS page_bytes FROM (the first query))
 *     WHERE page_bytes - BYTES <= 524288 ORDER BY page_bytes
 *
 * The order needs an index that begins with the columns of the other conditions, such as `leads_newest`. A page of
 * up to `FEW` items then reads few rows beyond its own, at any depth (docs/performance.md).
 *
 * The function fills in the placeholders `at` and `id` of `isOnPage`, and `rows` of the limit, which is added here. Its
 * caller passes the values of all others, such as `workspaceId`.
 *
 * @param select selects the rows with the condition `isOnPage`, without order and limit.
 * @param bytes the approximate size of an item, in SQL over the names of the selected fields; by default, the sum of the
 *   sizes of all fields.
 */
export function preparePage<Row extends object>({
  order,
  select,
  bytes,
}: {
  order: Order;
  select: RowQuery<Row>;
  bytes?: SQL;
}) {
  const sorted = (select as unknown as Sortable<Row>).orderBy(...sortNewest(order));
  const page = sorted.limit(sql.placeholder("rows"));
  const selectFew = prepared(
    readAs<RowQuery<Row>, Found<Row>>(page, (rows) => ({ rows, fitting: rows.length })),
  );
  const selectMany = prepared(
    readAs<RowQuery<SizedRow<Row>>, Found<Row>>(boundBytes<Row>(page, order, bytes), (sized) => ({
      rows: sized.map(({ row }) => row),
      fitting: sized.filter(({ pageBytes }) => pageBytes <= PAGE_MAX_BYTES).length,
    })),
  );
  return async (
    db: Database,
    values: Record<string, unknown>,
    { limit, after }: PageRequest,
  ): Promise<Page<Row>> => {
    const { at, id } = after ?? NEWEST;
    const selectPage = limit <= FEW ? selectFew : selectMany;
    const found = await query(db, selectPage({ ...values, at, id, rows: limit + 1 }));
    return cutPage(found, limit, order);
  };
}

/** The rows that a page selects. If there are more than it shows, the last one only shows that there are. */
interface Found<Row> {
  rows: Row[];
  /** How many of them the size of the page allows. */
  fitting: number;
}

/** A row of a page, with the size of the page up to it, in bytes. */
interface SizedRow<Row> {
  row: Row;
  pageBytes: number;
}

/**
 * Bounds the size of a page in the database, so that no request holds more. Of the rows that a query selects, the first
 * ones are returned, up to the one with which the page would exceed `PAGE_MAX_BYTES`. That one only shows that there is
 * more.
 */
function boundBytes<Row>(
  selected: Nameable,
  { at, id }: Order,
  bytes?: SQL,
): RowQuery<SizedRow<Row>> {
  const page = selected.as("page");
  const columnsOf = (rows: Columns) =>
    Object.fromEntries(
      Object.keys(page._.selectedFields).map((name) => [name, rows[name] as SQLiteColumn]),
    );
  // The names in `bytes` are fields of both queries below.
  const sizeOf = (rows: Columns) => bytes ?? sumOfSizes(rows);
  const columns = columnsOf(page);
  const newest = sql`${columns[fieldOf(at)]} DESC, ${columns[fieldOf(id)]} DESC`;
  const pageBytes = sql<number>`sum(${sizeOf(columns)}) OVER (ORDER BY ${newest})`;
  const sized = qb
    .select({ ...columns, pageBytes: pageBytes.as("page_bytes") })
    .from(page)
    .as("sized");
  const shown = columnsOf(sized as never);
  // The size of the page rises with each of its rows, so that is their order.
  return qb
    .select({ row: shown, pageBytes: sized.pageBytes })
    .from(sized)
    .where(sql`${sized.pageBytes} - (${sizeOf(shown)}) <= ${PAGE_MAX_BYTES}`)
    .orderBy(sql`${sized.pageBytes}`) as never;
}

function sumOfSizes(rows: Columns): SQL {
  const sizes = Object.values(rows).map((column) => sql`coalesce(octet_length(${column}), 4)`);
  return sql.join(sizes, sql` + `);
}

/** Makes a page of at most `limit` rows. A single item always fits, so no page is cut to nothing. */
function cutPage<Row extends object>(
  { rows, fitting }: Found<Row>,
  limit: number,
  order: Order,
): Page<Row> {
  const items = rows.slice(0, Math.min(limit, fitting));
  const last = items.at(-1);
  return { items, next: last && rows.length > items.length ? positionOf(last, order) : null };
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
