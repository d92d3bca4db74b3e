import type { ErrorCode } from "../contract/errors.ts";
import { CODES, ERROR_EXAMPLES, type ErrorExample } from "./errors.ts";

/**
 * The headers of every response, and those specific to 401 and 429.
 */
export const HEADERS = {
  "Cache-Control": header("Always `no-store`: the data is personal.", {
    type: "string",
    enum: ["no-store"],
  }),
  "X-RateLimit-Limit": header(
    "Requests that the key may make per window, including those answered 403. Without a valid key: failures that the address may make.",
    { type: "integer" },
    600,
  ),
  "X-RateLimit-Remaining": header("Requests left in this window.", { type: "integer" }, 599),
  "X-RateLimit-Reset": header(
    "Seconds until the window resets. Not a timestamp.",
    { type: "integer" },
    60,
  ),
  "X-Request-Id": header(
    "Identifies this request in our logs: quote it when you contact us.",
    { type: "string" },
    "9c1f2e6a4b7d8035-CDG",
  ),
  "WWW-Authenticate": header("The same for every problem with the key.", {
    type: "string",
    enum: ["Bearer"],
  }),
  "Retry-After": header("Seconds to wait before the next request.", { type: "integer" }, 42),
};

function header(description: string, schema: object, example?: unknown) {
  return {
    description,
    required: true,
    schema: { ...schema, ...(example !== undefined && { example }) },
  };
}

/** Headers that only appear with one status. */
const STATUS_OF: Record<string, number> = { "WWW-Authenticate": 401, "Retry-After": 429 };

/** References to the headers of a response. */
function headersOf(status: number) {
  const names = Object.keys(HEADERS).filter((name) => (STATUS_OF[name] ?? status) === status);
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

/** A success response with a JSON body of the named schema. */
export function json(description: string, schema: string, example: unknown) {
  return {
    description,
    headers: headersOf(200),
    content: {
      "application/json": { schema: { $ref: `#/components/schemas/${schema}` }, example },
    },
  };
}

/** A success response without a body. */
export function empty(description: string) {
  return { description, headers: headersOf(204) };
}

const EXAMPLE_WORDS: Partial<Record<ErrorExample, string>> = {
  limit_out_of_range: "A `limit` out of range",
  cursor_unreadable: "A cursor from another list",
  status_unknown: "A status that does not exist",
  status_missing: "No status",
  property_unknown: "A property that does not exist",
  url_not_https: "A URL without HTTPS",
  event_unknown: "A kind of event that does not exist",
  too_many_subscriptions: "One subscription too many",
};

/** The error responses that operations share, by name. */
export const RESPONSES = {
  InvalidQuery: error(400, ["limit_out_of_range", "cursor_unreadable"]),
  InvalidControl: error(400, ["status_unknown", "status_missing", "property_unknown"]),
  InvalidSubscription: error(400, ["url_not_https", "event_unknown", "too_many_subscriptions"]),
  InvalidApiKey: error(401, ["invalid_api_key"]),
  WorkspaceAccessDenied: error(403, ["workspace_access_denied"]),
  RouteNotFound: error(404, ["route_not_found"]),
  AutomationNotFound: error(404, ["automation_not_found", "route_not_found"]),
  WebhookNotFound: error(404, ["webhook_not_found", "route_not_found"]),
  BodyTooLarge: error(413, ["body_too_large"]),
  UnsupportedMediaType: error(415, ["unsupported_media_type"]),
  AutomationNotControllable: error(422, ["automation_not_controllable"]),
  RateLimited: error(429, ["rate_limited"]),
  InternalError: error(500, ["internal_error"]),
};

type Shared = keyof typeof RESPONSES;

function error(status: number, examples: ErrorExample[]) {
  const codes = new Set<ErrorCode>(examples.map((name) => ERROR_EXAMPLES[name].error.code));
  const sentences = [...codes].map(
    (code) => `\`${code}\`: ${CODES[code].when} ${CODES[code].todo}`,
  );
  return {
    description: sentences.join("\n\n"),
    headers: headersOf(status),
    content: {
      "application/json": {
        schema: { $ref: "#/components/schemas/Error" },
        examples: Object.fromEntries(
          examples.map((name) => [
            name,
            { summary: EXAMPLE_WORDS[name] ?? `\`${name}\``, value: ERROR_EXAMPLES[name] },
          ]),
        ),
      },
    },
  };
}

const EVERYWHERE: Record<number, Shared> = {
  401: "InvalidApiKey",
  403: "WorkspaceAccessDenied",
  404: "RouteNotFound",
  429: "RateLimited",
  500: "InternalError",
};

/** References to an operation's error responses: those common to all, and its own. */
export function errors(own: Record<number, Shared> = {}) {
  return Object.fromEntries(
    Object.entries({ ...EVERYWHERE, ...own }).map(([status, name]) => [
      status,
      { $ref: `#/components/responses/${name}` },
    ]),
  );
}
