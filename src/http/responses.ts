import { z } from "@hono/zod-openapi";
import {
  ApiError,
  ERRORS,
  ErrorBody,
  type ErrorCode,
  type ErrorDetails,
  type ErrorStatus,
} from "../contract/errors.ts";
import { BODY_MAX_BYTES } from "../contract/limits.ts";

/** What every operation may answer, whatever it does. */
const EVERYWHERE = [
  "invalid_api_key",
  "workspace_access_denied",
  "route_not_found",
  "rate_limited",
  "internal_error",
] as const satisfies ErrorCode[];

/** The headers of every answer (contract, Endpoints: common rule 2). */
const HEADERS = z.object({
  "Cache-Control": z.literal("no-store"),
  "X-RateLimit-Limit": z.int().openapi({
    description:
      "Requests allowed per window, those that are refused with 403 included; without a valid key, failures allowed to the address.",
    example: 600,
  }),
  "X-RateLimit-Remaining": z.int().openapi({ description: "What is left of it.", example: 599 }),
  "X-RateLimit-Reset": z
    .int()
    .openapi({ description: "Seconds left until the window resets.", example: 60 }),
});

const HEADERS_OF_401 = HEADERS.extend({
  "WWW-Authenticate": z
    .literal("Bearer")
    .openapi({ description: "The same whatever is wrong with the key." }),
});

const HEADERS_OF_429 = HEADERS.extend({
  "Retry-After": z.int().openapi({ description: "Seconds to wait.", example: 42 }),
});

/** A success with a JSON body. */
export function json<T extends z.ZodType>(description: string, schema: T) {
  return { description, headers: HEADERS, content: { "application/json": { schema } } };
}

/** A success without a body. */
export function empty(description: string) {
  return { description, headers: HEADERS };
}

type ErrorResponse = ReturnType<typeof errorResponse>;

/**
 * The error responses of a route, by status: those of every operation and those of its own `codes`.
 *
 * @param withBody whether the route reads a body, and so can answer 413 and 415.
 */
export function errors(codes: ErrorCode[] = [], withBody = false) {
  const byStatus = new Map<ErrorStatus, ErrorCode[]>();
  for (const code of [...EVERYWHERE, ...codes]) {
    const statuses = withBody ? ERRORS[code].statuses : ERRORS[code].statuses.slice(0, 1);
    for (const status of statuses) byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [status, errorResponse(status, codes, withBody)]),
  ) as Record<ErrorStatus, ErrorResponse>;
}

function errorResponse(status: ErrorStatus, codes: ErrorCode[], withBody: boolean) {
  return {
    description: codes.map((code) => `\`${code}\`: ${ERRORS[code].when}`).join("\n\n"),
    headers: headersOf(status),
    content: {
      "application/json": {
        schema: ErrorBody,
        examples: Object.fromEntries(
          codes.map((code) => [code, { value: exampleOf(code, status, withBody) }]),
        ),
      },
    },
  };
}

function headersOf(status: ErrorStatus) {
  if (status === 401) return HEADERS_OF_401;
  return status === 429 ? HEADERS_OF_429 : HEADERS;
}

function exampleOf(code: ErrorCode, status: ErrorStatus, withBody: boolean) {
  if (code === "rate_limited") return new ApiError(code, { retry_after_seconds: 42 }).toBody();
  if (code !== "invalid_request") return new ApiError(code).toBody();
  if (status === 413)
    return new ApiError(code, { reason: "body_too_large", max: BODY_MAX_BYTES }, status).toBody();
  if (status === 415)
    return new ApiError(code, { reason: "unsupported_media_type" }, status).toBody();
  const details: ErrorDetails = withBody
    ? { parameter: "colour", reason: "unknown_property" }
    : { parameter: "limit", reason: "out_of_range", min: 1, max: 100 };
  return new ApiError(code, details).toBody();
}
