import { WebhookEvent } from "../../contract/enumerations.ts";
import {
  ApiError,
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  type Reason,
} from "../../contract/errors.ts";
import {
  BODY_MAX_BYTES,
  BODY_MAX_MS,
  PAGE_LIMIT,
  SUBSCRIPTIONS_MAX,
  URL_MAX_LENGTH,
} from "../../contract/limits.ts";
import { ERROR_RESPONSES, type ErrorResponse, headersOf, responseOf } from "../responses.ts";

/** The meaning of each reason, and the values that would be valid. */
export const REASONS_EXPLAINED: Record<Reason, string> = {
  required: "A required property is missing.",
  invalid_type: "A value has the wrong type, or a parameter was sent twice.",
  unknown_value: "A value is not among those in `allowed`.",
  out_of_range:
    "A number, a length, or the number of items, commas or nested levels is not between `min` and `max`.",
  unreadable: "The cursor does not come from this list. Start over without one.",
  unknown_property: "The body has a property that does not exist. `parameter` names it.",
  invalid_url: `The URL is not valid, or has more than ${URL_MAX_LENGTH} characters.`,
  https_required: "The URL does not start with `https://`.",
  credentials_not_allowed: "The URL contains a user name or a password.",
  private_address: "The URL points to a private or local address.",
  unresolvable_host: "The URL's host name does not exist in DNS.",
  invalid_json: "The body is not valid JSON in UTF-8.",
  body_too_large: "The body is larger than `max` bytes. The status is 413.",
  body_too_slow: `The body took longer than ${BODY_MAX_MS / 1000} s to arrive, so the request had no effect. Send it again.`,
  unsupported_media_type:
    "`Content-Type` is not `application/json`, or the body is compressed. The status is 415.",
  subscription_limit_reached:
    "The workspace already has its maximum of `max` webhooks. Delete one first.",
  idempotency_key_reused:
    "The `Idempotency-Key` was sent with another URL or other event types in the last 24 h. Use a new one.",
};

/** Whether the same request may succeed later, by code. */
export const RETRY: Record<ErrorCode, string> = {
  invalid_request: "Only once its cause is fixed; with the reason `body_too_slow`, yes",
  invalid_api_key: "No",
  workspace_access_denied: "No",
  automation_not_found: "No",
  webhook_not_found: "No",
  route_not_found: "No",
  automation_not_controllable: "Only once it is `active` or `paused`",
  rate_limited: "Yes, after `Retry-After`",
  internal_error:
    "Yes, after `Retry-After` or with exponential backoff; `POST /v1/webhooks` only with its `Idempotency-Key`",
};

function example(code: ErrorCode, details: ErrorDetails = {}, summary?: string) {
  const named = summary ?? `\`${details.reason ?? code}\``;
  return { summary: named, value: new ApiError(code, details).toBody() };
}

function mistake(summary: string, details: ErrorDetails) {
  return example("invalid_request", details, summary);
}

const { min, max } = PAGE_LIMIT;

const CODES = Object.keys(ERRORS) as ErrorCode[];

const OF_CODES = Object.fromEntries(CODES.map((code) => [code, example(code)])) as Record<
  ErrorCode,
  ReturnType<typeof example>
>;

/** Examples of errors, for each code and the most common mistakes. */
const EXAMPLES = {
  limit_out_of_range: mistake("A `limit` out of range", {
    parameter: "limit",
    reason: "out_of_range",
    min,
    max,
  }),
  cursor_unreadable: mistake("A cursor from another list", {
    parameter: "cursor",
    reason: "unreadable",
  }),
  status_unknown: mistake("A status that does not exist", {
    parameter: "status",
    reason: "unknown_value",
    allowed: ["active", "paused"],
  }),
  status_missing: mistake("No status", { parameter: "status", reason: "required" }),
  property_unknown: mistake("A property that does not exist", {
    parameter: "colour",
    reason: "unknown_property",
  }),
  url_not_https: mistake("A URL without HTTPS", { parameter: "url", reason: "https_required" }),
  event_unknown: mistake("An event type that does not exist", {
    parameter: "events.0",
    reason: "unknown_value",
    allowed: WebhookEvent.options,
  }),
  too_many_subscriptions: mistake("One webhook too many", {
    reason: "subscription_limit_reached",
    max: SUBSCRIPTIONS_MAX,
  }),
  idempotency_key_reused: mistake("An `Idempotency-Key` that another request has used", {
    parameter: "idempotency-key",
    reason: "idempotency_key_reused",
  }),
  body_too_large: example("invalid_request", { reason: "body_too_large", max: BODY_MAX_BYTES }),
  unsupported_media_type: example("invalid_request", { reason: "unsupported_media_type" }),
  ...OF_CODES,
  automation_not_controllable: example("automation_not_controllable", { status: "draft" }),
  rate_limited: example("rate_limited", { retry_after_seconds: 42 }),
};

type ErrorExample = keyof typeof EXAMPLES;

/** The examples of the error responses that have several, or one other than the example of their code. */
const EXAMPLES_OF: Partial<Record<ErrorResponse, ErrorExample[]>> = {
  InvalidQuery: ["limit_out_of_range", "cursor_unreadable"],
  InvalidControl: ["status_unknown", "status_missing", "property_unknown"],
  InvalidSubscription: [
    "url_not_https",
    "event_unknown",
    "too_many_subscriptions",
    "idempotency_key_reused",
  ],
  BodyTooLarge: ["body_too_large"],
  UnsupportedMediaType: ["unsupported_media_type"],
};

/** Returns the examples of an error response. A route that is not served also gives 404. */
function examplesOf(name: ErrorResponse): ErrorExample[] {
  const code = CODES.find((one) => responseOf(one) === name);
  const own = EXAMPLES_OF[name] ?? (code ? [code] : []);
  return ERROR_RESPONSES[name] === 404
    ? [...new Set<ErrorExample>([...own, "route_not_found"])]
    : own;
}

/** The error responses that operations refer to, by name. */
export function errorResponses() {
  const names = Object.keys(ERROR_RESPONSES) as ErrorResponse[];
  return names.map((name) => ({ name, response: describe(name) }));
}

function describe(name: ErrorResponse) {
  const shown = examplesOf(name).map((one) => [one, EXAMPLES[one]] as const);
  const codes = new Set(shown.map(([, { value }]) => value.error.code));
  const sentences = [...codes].map(
    (code) => `\`${code}\`: ${ERRORS[code].when} ${ERRORS[code].todo}`,
  );
  return {
    description: sentences.join("\n\n"),
    headers: headersOf(ERROR_RESPONSES[name]),
    content: {
      "application/json": {
        schema: { $ref: "#/components/schemas/Error" },
        examples: Object.fromEntries(shown),
      },
    },
  };
}
