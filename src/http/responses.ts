import type { z } from "@hono/zod-openapi";
import { ERRORS, type ErrorCode, type ErrorStatus } from "../contract/errors.ts";

/*
 * The responses of an operation as `createRoute` takes them. What operations share is a reference:
 * the document describes it once (document/).
 */

const HEADERS = [
  "Cache-Control",
  "X-RateLimit-Limit",
  "X-RateLimit-Remaining",
  "X-RateLimit-Reset",
  "RateLimit-Policy",
  "RateLimit",
  "X-Request-Id",
] as const;

/** Headers that only appear with one status: their names, and those of their components. */
const HEADERS_OF = [
  [401, "WWW-Authenticate", "WWW-Authenticate"],
  [429, "Retry-After", "Retry-After"],
  [500, "Retry-After", "Retry-After-If-Temporary"],
] as const;

/** The header of every error: where its code is explained. */
const HELP = "Link";

/** The component of a header. */
export type Header = (typeof HEADERS)[number] | (typeof HEADERS_OF)[number][2] | typeof HELP;

/** References to the headers of a response with this status. */
export function headersOf(status: number) {
  const components: Record<string, Header> = Object.fromEntries(
    HEADERS.map((name) => [name, name]),
  );
  if (status >= 400) components[HELP] = HELP;
  for (const [of, name, component] of HEADERS_OF) if (of === status) components[name] = component;
  return Object.fromEntries(
    Object.entries(components).map(([name, component]) => [
      name,
      { $ref: `#/components/headers/${component}` },
    ]),
  );
}

function jsonOf<S extends z.ZodType>(schema: S, example: z.input<S>) {
  return { "application/json": { schema, example } };
}

/** The body of a request; `jsonBody` reads it. */
export function body<S extends z.ZodType>(schema: S, example: z.input<S>) {
  return { required: true, content: jsonOf(schema, example) };
}

export function json<S extends z.ZodType>(schema: S, description: string, example: z.input<S>) {
  return { description, headers: headersOf(200), content: jsonOf(schema, example) };
}

export function empty(description: string) {
  return { description, headers: headersOf(204) };
}

type PascalCase<Name extends string> = Name extends `${infer Word}_${infer Rest}`
  ? `${Capitalize<Word>}${PascalCase<Rest>}`
  : Capitalize<Name>;

/** The name of the error response with a code: its words, capitalized. */
export function responseOf<Code extends ErrorCode>(code: Code): PascalCase<Code> {
  const words = code.split("_").map((word) => word.slice(0, 1).toUpperCase() + word.slice(1));
  return words.join("") as PascalCase<Code>;
}

const { invalid_request: _, ...SIMPLE } = ERRORS;

const OF_CODES = Object.fromEntries(
  Object.entries(SIMPLE).map(([code, { statuses }]) => [
    responseOf(code as ErrorCode),
    statuses[0],
  ]),
) as Record<PascalCase<keyof typeof SIMPLE>, ErrorStatus>;

/** The status of each error response: one for each code, but several for `invalid_request`. */
export const ERROR_RESPONSES = {
  ...OF_CODES,
  InvalidQuery: 400,
  InvalidControl: 400,
  InvalidSubscription: 400,
  BodyTooLarge: 413,
  UnsupportedMediaType: 415,
} satisfies Record<string, ErrorStatus>;

export type ErrorResponse = keyof typeof ERROR_RESPONSES;

/** Every operation can answer these; a route's own 404 takes the place of `RouteNotFound`. */
const ANY_OPERATION: ErrorResponse[] = [
  "InvalidApiKey",
  "WorkspaceAccessDenied",
  "RouteNotFound",
  "RateLimited",
  "InternalError",
];

/**
 * The error responses of an operation: its own, and those of every operation.
 *
 * Their type is empty, because handlers throw errors: what one returns must be a success.
 */
export function errors(...own: ErrorResponse[]): object {
  return Object.fromEntries(
    [...ANY_OPERATION, ...own].map((name) => [
      ERROR_RESPONSES[name],
      { $ref: `#/components/responses/${name}` },
    ]),
  );
}
