import { type SQL, sql } from "drizzle-orm";
import { encodeCursor, type Position } from "../contract/cursor.ts";
import type { Page } from "../contract/resources.ts";
import { prepared } from "../db/client.ts";

/** What a client asks of a list: at most `limit` items, those older than `after`. */
export interface PageRequest {
  limit: number;
  after: Position | null;
}

/**
 * The end of a prepared query for a page, newest first by (`at`, `id`): what is behind the position
 * that `pageValues` gives, and one row more than is shown.
 *
 * @param rows how many at the most; 0 for a page that must not be read.
 */
export function pageOrder(at: "created_at" | "occurred_at", rows = ROWS): SQL {
  return sql`${behind(at)} ${newestFirst(at, rows)}`;
}

/** As many rows as a query for a page reads at the most. */
export const ROWS = sql`${sql.placeholder("rows")}`;

function behind(at: "created_at" | "occurred_at"): SQL {
  // Not `<`: SQLite would look up the row of the position itself, and drop it.
  return sql`AND (${sql.raw(at)}, id) <= (${sql.placeholder("at")}, ${sql.placeholder("id")})`;
}

function newestFirst(at: "created_at" | "occurred_at", rows = ROWS): SQL {
  return sql`ORDER BY ${sql.raw(at)} DESC, id DESC LIMIT ${rows}`;
}

/**
 * The prepared queries for pages of a table whose rows of two kinds are indexed apart: of the social
 * ones alone, and of all, by walking both indexes at once.
 *
 * @param select the query for one kind, as far as its conditions.
 */
export function pagesOf<Row>(
  at: "created_at" | "occurred_at",
  select: (kind: "social" | "crm") => SQL,
) {
  const [social, crm] = [select("social"), select("crm")];
  return {
    social: prepared<Row>(sql`${social} ${pageOrder(at)}`),
    all: prepared<Row>(
      sql`${social} ${behind(at)} UNION ALL ${crm} ${behind(at)} ${newestFirst(at)}`,
    ),
  };
}

/** The values of a query that ends with `pageOrder`. */
export function pageValues({ limit, after }: PageRequest) {
  const { at, id } = after ?? BEFORE_ALL;
  return { at, id: after ? lastBefore(id) : id, rows: limit + 1 };
}

const BEFORE_ALL: Position = { at: Number.MAX_SAFE_INTEGER, id: "" };

/** A text between `id` and all the ids before it. */
function lastBefore(id: string): string {
  return `${id.slice(0, -1)}${String.fromCharCode(id.charCodeAt(id.length - 1) - 1)}\uffff`;
}

/** Makes a page of the `limit + 1` rows that were read: the last one only tells that there is more. */
export function toPage<Row, Item>(
  list: string,
  rows: Row[],
  limit: number,
  position: (row: Row) => Position,
  toItem: (row: Row) => Item,
): Page<Item> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  const more = rows.length > limit && last !== undefined;
  return {
    data: shown.map(toItem),
    has_more: more,
    next_cursor: more ? encodeCursor(list, position(last)) : null,
  };
}
