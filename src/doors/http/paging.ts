import type { Context } from "hono";
import { decodeCursor, encodeCursor } from "../../contract/cursor.ts";
import { ApiError } from "../../contract/errors.ts";
import { PAGE_LIMIT } from "../../contract/limits.ts";
import type { Page } from "../../contract/resources.ts";
import type { Listing, PageRequest } from "../../model/page.ts";
import type { AppEnv } from "./context.ts";

/**
 * What a client asks of `list`, in the query parameters `limit` and `cursor`.
 *
 * @throws ApiError `invalid_request` that names the parameter.
 */
export function readPageRequest(c: Context<AppEnv>, list: string): PageRequest {
  const queries = c.req.queries();
  const limit = readLimit(readOnce(queries, "limit"));
  const cursor = readOnce(queries, "cursor") ?? "";
  if (cursor === "" || cursor === "null") return { limit, after: null };
  const after = decodeCursor(list, cursor);
  if (!after) throw new ApiError("invalid_request", { parameter: "cursor", reason: "unreadable" });
  return { limit, after };
}

/** The envelope of the contract around a page of `list`. */
export function toPage<Item>(list: string, { items, next }: Listing<Item>): Page<Item> {
  return {
    data: items,
    has_more: next !== null,
    next_cursor: next && encodeCursor(list, next),
  };
}

/**
 * A query parameter that is one of these values; null when it is absent or empty.
 *
 * @throws ApiError `invalid_request` that names the parameter.
 */
export function readChoice<T extends string>(
  c: Context<AppEnv>,
  parameter: string,
  allowed: readonly T[],
): T | null {
  const text = readOnce(c.req.queries(), parameter) ?? "";
  if (text === "") return null;
  const found = allowed.find((value) => value === text);
  if (found) return found;
  const reason = "unknown_value";
  throw new ApiError("invalid_request", { parameter, reason, allowed: [...allowed] });
}

/** A parameter that may come once or not at all. */
function readOnce(queries: Record<string, string[]>, parameter: string): string | undefined {
  const values = Object.hasOwn(queries, parameter) ? queries[parameter] : undefined;
  if (values && values.length > 1)
    throw new ApiError("invalid_request", { parameter, reason: "invalid_type" });
  return values?.[0];
}

/** A `limit` is decimal digits within its bounds, and is never corrected. */
function readLimit(text: string | undefined): number {
  if (text === undefined) return PAGE_LIMIT.default;
  const limit = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  const { min, max } = PAGE_LIMIT;
  if (limit >= min && limit <= max) return limit;
  const reason = Number.isNaN(limit) ? "invalid_type" : "out_of_range";
  throw new ApiError("invalid_request", { parameter: "limit", reason, min, max });
}
