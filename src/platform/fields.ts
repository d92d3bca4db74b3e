import { z } from "@hono/zod-openapi";
import { decodeCursor, encodeCursor, type ListName, type Position } from "../contract/cursor.ts";
import { Instant } from "../contract/fields.ts";
import { PAGE_LIMIT, REDELIVERY_MAX_AGE_MS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import type { Page, PageRequest } from "../db/page.ts";

export const DatabaseName = z.string().min(1).max(20);

/** The beginning of a range of events to send again. */
export const RedeliverableSince = Instant.refine(
  (since) => since >= Date.now() - REDELIVERY_MAX_AGE_MS,
  {
    error: `must be at most ${REDELIVERY_MAX_AGE_MS / DAY_MS} days ago: older events are deleted`,
    params: { reason: "out_of_range" },
  },
);

/** An integer in a range, both ends included. */
export function integer(min: number, max: number) {
  // The range comes first: `int` has one of its own, which an error would name instead.
  return z.number().min(min).max(max).int();
}

/** The cursor of a page of `list`, parsed to the position where the page begins. */
export function cursorOf(list: ListName) {
  return z
    .string()
    .transform((text, context) => {
      const position = decodeCursor(list, text);
      if (position) return position;
      context.addIssue({
        code: "custom",
        message: "is not a cursor of this list",
        params: { reason: "unreadable" },
      });
      return z.NEVER;
    })
    .nullish()
    .describe("the previous page's nextCursor; default: the first page");
}

/** Makes the schema of a page of a list. */
export function pageOf<T extends z.ZodType>(item: T) {
  return z.object({ items: z.array(item), nextCursor: z.string().nullable() });
}

/** The output of an operation that returns nothing. */
export const Nothing = z.object({});

/** Returns the request for the page of a list after a position, or for the first page. */
export function pageAfter(
  after: Position | null | undefined,
  limit: number = PAGE_LIMIT.max,
): PageRequest {
  return { limit, after: after ?? null };
}

/** Converts a page of `list` to the shape of `pageOf`. */
export function toPage<Item>(list: ListName, { items, next }: Page<Item>) {
  return { items, nextCursor: next && encodeCursor(list, next) };
}
