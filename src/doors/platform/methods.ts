import { encodeCursor, type Position } from "../../contract/cursor.ts";
import { PAGE_LIMIT } from "../../contract/limits.ts";
import type { ParsedInput, PlatformMethod } from "../../contract/platform.ts";
import type { Listing, PageRequest } from "../../model/page.ts";

/** What a method is called with besides its input. */
export interface Call {
  env: Env;
  /** Takes work that goes on after the method has returned. */
  ctx: Pick<ExecutionContext, "waitUntil">;
}

/**
 * The methods of the Platform door. Their input has been parsed; if it is wrong in any other way,
 * they throw an InputError that says what and where, and write nothing.
 */
export type Methods = {
  [M in PlatformMethod]: (call: Call, input: ParsedInput<M>) => Promise<object>;
};

/** The page of a list after a position, or the first page. */
export function pageAfter(
  after: Position | null | undefined,
  limit: number = PAGE_LIMIT.max,
): PageRequest {
  return { limit, after: after ?? null };
}

/** A page of `list` in the shape that methods return. */
export function toPlatformPage<Item>(list: string, { items, next }: Listing<Item>) {
  return { items, nextCursor: next && encodeCursor(list, next) };
}
