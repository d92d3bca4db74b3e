import type { Context } from "hono";
import { decodeCursor, encodeCursor } from "../../contract/cursor.ts";
import { ApiError } from "../../contract/errors.ts";
import { PAGE_LIMIT } from "../../contract/limits.ts";
import type { Page } from "../../contract/resources.ts";
import type { Listing, PageRequest } from "../../model/page.ts";
import type { AppEnv } from "./context.ts";

/**
 * Parses the query parameters `limit` and `cursor` of a request for `list`.
 *
 * @throws ApiError `invalid_request` that names the parameter.
 */
export function parsePageRequest(c: Context<AppEnv>, list: string): PageRequest {
  const queries = c.req.queries();
  const limit = parseLimit(singleValue(queries, "limit"));
  const cursor = singleValue(queries, "cursor") ?? "";
  if (cursor === "" || cursor === "null") return { limit, after: null };
  const after = decodeCursor(list, cursor);
  if (!after) throw new ApiError("invalid_request", { parameter: "cursor", reason: "unreadable" });
  return { limit, after };
}

/** Wraps a page of `list` in the contract's envelope. */
export function toPage<Item>(list: string, { items, next }: Listing<Item>): Page<Item> {
  return {
    data: items,
    has_more: next !== null,
    next_cursor: next && encodeCursor(list, next),
  };
}

/**
 * Parses a query parameter that must be one of the allowed values; null if absent or empty.
 *
 * @throws ApiError `invalid_request` that names the parameter.
 */
export function parseChoice<T extends string>(
  c: Context<AppEnv>,
  parameter: string,
  allowed: readonly T[],
): T | null {
  const text = singleValue(c.req.queries(), parameter) ?? "";
  if (text === "") return null;
  const found = allowed.find((value) => value === text);
  if (found) return found;
  const reason = "unknown_value";
  throw new ApiError("invalid_request", { parameter, reason, allowed: [...allowed] });
}

/** The value of a parameter that may occur at most once. */
function singleValue(queries: Record<string, string[]>, parameter: string): string | undefined {
  const values = Object.hasOwn(queries, parameter) ? queries[parameter] : undefined;
  if (values && values.length > 1)
    throw new ApiError("invalid_request", { parameter, reason: "invalid_type" });
  return values?.[0];
}

/** Parses `limit`: decimal digits, within bounds, never corrected. */
function parseLimit(text: string | undefined): number {
  if (text === undefined) return PAGE_LIMIT.default;
  const limit = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  const { min, max } = PAGE_LIMIT;
  if (limit >= min && limit <= max) return limit;
  const reason = Number.isNaN(limit) ? "invalid_type" : "out_of_range";
  throw new ApiError("invalid_request", { parameter: "limit", reason, min, max });
}
