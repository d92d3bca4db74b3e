import { z } from "@hono/zod-openapi";
import { decodeCursor, encodeCursor, type ListName } from "../contract/cursor.ts";
import { ApiError } from "../contract/errors.ts";
import { PAGE_LIMIT, PAGE_MAX_BYTES } from "../contract/limits.ts";
import type { Page, PageRequest } from "../db/page.ts";

/*
 * To add a query parameter of a list, such as a filter:
 *
 * 1. In the route, `query: PageQuery.extend({ … })`. Each parameter needs an `example` that finds some of the items of
 *    `PAGES` in `src/http/routes/examples.ts`, because `test/worker/http/document/examples.test.ts` sends it. The
 *    `params.reason` of a check other than an enumeration is one of `REASONS` in `src/contract/errors.ts`. Its 400
 *    shares the examples of `InvalidQuery` in `src/http/document/errors.ts`: add none, because every list has them. The
 *    guides `pagination.md`, `personal-data.md`, `polling.md` and `sync.md` in `site/guides/` say that there is no filter.
 * 2. Pass the value to the list's function in `src/records/` or `src/subscriptions/`. A filter for items before a time of
 *    the column that the list is sorted by needs neither this nor the steps 3 and 4. Instead, set `after` of the
 *    `PageRequest` to `{ at: time, id: "" }`, unless its `at` is already before that time.
 * 3. There, prepare one page for each combination of filters, which is 2ⁿ pages for n optional filters. An example is
 *    `listRunsOfAutomation` beside `listRuns` in `src/records/runs.ts`. SQLite uses an index only for a condition that
 *    always applies, not for `:agent IS NULL OR agent_id = :agent`.
 * 4. Add an index to `src/db/schema.ts` for each page. It begins with the columns of the conditions, and ends with the
 *    two columns that the list is sorted by. `test/worker/db/pages.test.ts` counts the rows that pages read. Each record
 *    then writes one row more. Adapt the counts of `test/worker/delivery`, `LEAD_BYTES` in `bench/price.ts` for an index
 *    on leads, and the figures of `docs/performance.md` (`npm run bench -- --only rows`, `--only month`, `npm run price`).
 * 5. A cursor names its list and a position, but no filter. A client may continue with another filter from there, and
 *    gets the older items that match it. If that must be an error, give the filtered list a `ListName` of its own in
 *    `src/contract/cursor.ts`.
 * 6. `npm run migrations` if you have added an index, `npm run openapi`, and a line in the changelog. If the methods of
 *    `examples/client/client.ts` should take the parameter, add it there.
 */

const { min, max } = PAGE_LIMIT;

/** The beginning of every list's description. @param by what the list is sorted by. */
export function listOrder(by: string): string {
  return `Newest first, by ${by}. Follow \`next_cursor\` until it is null, even after a short page. If items come or go meanwhile, you get each of the others once.`;
}

/** The query parameters of every list. Others are ignored. A `limit` has decimal digits, and is never clamped. */
export const PageQuery = z.object({
  limit: z
    .string()
    .refine((text) => /^-?[0-9]+$/.test(text), { params: { reason: "invalid_type", min, max } })
    .transform(Number)
    .refine((limit) => limit >= min && limit <= max, {
      params: { reason: "out_of_range", min, max },
    })
    .default(PAGE_LIMIT.default)
    .openapi({
      type: "integer",
      minimum: min,
      maximum: max,
      default: PAGE_LIMIT.default,
      param: {
        description: `Maximum number of items on the page, ${min} to ${max}. Values outside this range give 400; they are not clamped. Whatever the number, a page ends at about ${PAGE_MAX_BYTES / 1024} KiB.`,
        example: PAGE_LIMIT.default,
      },
    }),
  cursor: z
    .string()
    .default("")
    .openapi({
      param: {
        description:
          "The `next_cursor` of the previous page. If it is absent, empty or the word `null`, you get the first page.",
        // The example is empty, because tools that make requests from the document use it.
        example: "",
      },
    }),
});

/**
 * Converts the query of a client to a request for a page of `list`.
 *
 * @throws ApiError `invalid_request` if the cursor is not one of this list.
 */
export function toPageRequest(
  list: ListName,
  { limit, cursor }: z.output<typeof PageQuery>,
): PageRequest {
  if (cursor === "" || cursor === "null") return { limit, after: null };
  const after = decodeCursor(list, cursor);
  if (!after) throw new ApiError("invalid_request", { parameter: "cursor", reason: "unreadable" });
  return { limit, after };
}

/** Makes the schema of the pagination envelope of a list of `item`. */
export function pageSchema<Item extends z.ZodType>(item: Item, name: string, items: string) {
  return z
    .object({
      data: z.array(item).openapi({ description: `The ${items} of this page, newest first.` }),
      has_more: z.boolean().openapi({
        description: "Whether there is another page.",
        example: false,
      }),
      next_cursor: z.string().nullable().openapi({
        description: "The `cursor` for the next page; null on the last page.",
        example: null,
      }),
    })
    .openapi(name, { description: `A page of ${items}.` });
}

/** The pagination envelope of a list. */
export interface PageBody<Item> {
  data: Item[];
  has_more: boolean;
  next_cursor: string | null;
}

/** Wraps a page of `list` in the contract's envelope. */
export function toPageBody<Item>(list: ListName, { items, next }: Page<Item>): PageBody<Item> {
  return {
    data: items,
    has_more: next !== null,
    next_cursor: next && encodeCursor(list, next),
  };
}
