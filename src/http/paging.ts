import { z } from "@hono/zod-openapi";
import { decodeCursor } from "../contract/cursor.ts";
import { ApiError, type Reason } from "../contract/errors.ts";
import { PAGE_LIMIT } from "../contract/limits.ts";
import type { PageRequest } from "../model/page.ts";

/** A `limit` is decimal digits within its bounds, and is never corrected. */
const Limit = z
  .string()
  .transform((text, context) => {
    const limit = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
    if (limit >= PAGE_LIMIT.min && limit <= PAGE_LIMIT.max) return limit;
    const reason: Reason = Number.isNaN(limit) ? "invalid_type" : "out_of_range";
    const { min, max } = PAGE_LIMIT;
    context.addIssue({ code: "custom", params: { reason, min, max } });
    return z.NEVER;
  })
  .optional()
  .openapi({
    param: { name: "limit", in: "query", required: false },
    type: "integer",
    minimum: PAGE_LIMIT.min,
    maximum: PAGE_LIMIT.max,
    default: PAGE_LIMIT.default,
    description: "Items on the page. Out of range is refused, never corrected.",
  });

/** The query parameters of every list. */
export const PageQuery = z.object({
  limit: Limit,
  cursor: z
    .string()
    .optional()
    .openapi({
      param: { name: "cursor", in: "query", required: false },
      description:
        "`next_cursor` of the page before. Absent, empty or the word `null`: the first page.",
    }),
});

/** What a client asks of `list`. @throws ApiError `invalid_request` for an unreadable cursor. */
export function readPageRequest(list: string, query: z.output<typeof PageQuery>): PageRequest {
  const { limit = PAGE_LIMIT.default, cursor = "" } = query;
  if (cursor === "" || cursor === "null") return { limit, after: null };
  const after = decodeCursor(list, cursor);
  if (!after) throw new ApiError("invalid_request", { parameter: "cursor", reason: "unreadable" });
  return { limit, after };
}

/** The envelope of a list of `item`, named for the document. */
export function pageOf<T extends z.ZodType>(item: T, name: string) {
  return z
    .object({
      data: z.array(item),
      has_more: z
        .boolean()
        .openapi({ description: "True when a further page exists.", example: false }),
      next_cursor: z.string().nullable().openapi({
        description: "Opaque cursor of the next page; null when there is none.",
        example: null,
      }),
    })
    .openapi(name);
}
