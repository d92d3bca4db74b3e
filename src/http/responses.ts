import type { z } from "@hono/zod-openapi";
import { ERRORS, type ErrorCode, type ErrorStatus } from "../contract/errors.ts";

/*
 * Makes the responses of an operation for `createRoute`. Parts that operations share are references, so that the
 * document describes them once (document/).
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

/** The headers that appear with one status only: the status, the header, and its component in the document. */
const HEADERS_OF = [
  [401, "WWW-Authenticate", "WWW-Authenticate"],
  [429, "Retry-After", "Retry-After"],
  [500, "Retry-After", "Retry-After-If-Temporary"],
] as const;

/** The header of every error, with the URL where its code is explained. */
const HELP = "Link";

/** The name of a header's component in the document. */
export type Header = (typeof HEADERS)[number] | (typeof HEADERS_OF)[number][2] | typeof HELP;

/** Returns references to the headers of a response with this status. */
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

/** Describes the body of a request, which `jsonBody` reads. */
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

/** Returns the name of the error response with a code: the words of the code, capitalized. */
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

/** The status of each error response. There is one response for each code, and several for `invalid_request`. */
export const ERROR_RESPONSES = {
  ...OF_CODES,
  InvalidQuery: 400,
  InvalidControl: 400,
  InvalidSubscription: 400,
  BodyTooLarge: 413,
  UnsupportedMediaType: 415,
} satisfies Record<string, ErrorStatus>;

export type ErrorResponse = keyof typeof ERROR_RESPONSES;

/** The error responses of every operation; a route's own 404 takes the place of `RouteNotFound`. */
const ANY_OPERATION: ErrorResponse[] = [
  "InvalidApiKey",
  "WorkspaceAccessDenied",
  "RouteNotFound",
  "RateLimited",
  "InternalError",
];

/**
 * Describes the error responses of an operation: its own, and those of every operation. The type is empty, because
 * handlers throw errors and may only return a success.
 */
export function errors(...own: ErrorResponse[]): object {
  return Object.fromEntries(
    [...ANY_OPERATION, ...own].map((name) => [
      ERROR_RESPONSES[name],
      { $ref: `#/components/responses/${name}` },
    ]),
  );
}
