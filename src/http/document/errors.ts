import { ApiError, type ErrorCode, type Reason } from "../../contract/errors.ts";
import {
  BODY_MAX_BYTES,
  PAGE_LIMIT,
  SUBSCRIPTIONS_MAX,
  URL_MAX_LENGTH,
} from "../../contract/limits.ts";
import { ERROR_RESPONSES, type ErrorResponse, headersOf } from "../responses.ts";

/** When each code is returned, and what to do about it. */
export const CODES: Record<ErrorCode, { when: string; todo: string }> = {
  invalid_request: {
    when: "A query parameter or the body is invalid.",
    todo: "Fix what `details` names. Repeating the same request gives the same answer.",
  },
  invalid_api_key: {
    when: "The key is missing, malformed, unknown or revoked; the answer is the same in each case.",
    todo: "Check the `Authorization` header, or create a new key in the workspace settings.",
  },
  workspace_access_denied: {
    when: "The key is valid, but its workspace has no access to the service. The request counts against the key's quota, but the answer stays the same once the quota is used up.",
    todo: "Ask an administrator of the workspace to check its subscription.",
  },
  automation_not_found: {
    when: "The workspace has no automation with this id.",
    todo: "List the automations again: the account may have been disconnected.",
  },
  webhook_not_found: {
    when: "The workspace has no subscription with this id, or it was deleted.",
    todo: "If you were deleting it, it is already deleted.",
  },
  route_not_found: {
    when: "The path or method is unknown, or this deployment does not serve it yet.",
    todo: "Check the method and path against the reference. Paths have no trailing slash.",
  },
  automation_not_controllable: {
    when: "The automation is `draft` or `error`.",
    todo: "Activate or fix it in the application first.",
  },
  rate_limited: {
    when: "The key's quota is used up, or too many requests from your address had an invalid key.",
    todo: "Wait for the number of seconds in `Retry-After`, then retry.",
  },
  internal_error: {
    when: "An error on our side.",
    todo: "Retry with growing waits. If the error persists, contact us and quote `X-Request-Id`.",
  },
};

/** What each reason means, and what would be valid. */
export const REASONS_EXPLAINED: Record<Reason, string> = {
  required: "A required property is missing.",
  invalid_type: "A value has the wrong type, or a parameter was sent twice.",
  unknown_value: "A value is not among those in `allowed`.",
  out_of_range: "A number, or the number of items, is not between `min` and `max`.",
  unreadable: "The cursor does not come from this list. Start over without one.",
  unknown_property: "The body has a property that does not exist: `parameter` names it.",
  invalid_url: `The URL is not valid, or has more than ${URL_MAX_LENGTH} characters.`,
  https_required: "The URL does not start with `https://`.",
  credentials_not_allowed: "The URL contains a user name or a password.",
  private_address: "The URL points to a private or local address.",
  unresolvable_host: "The URL's host name does not exist in DNS.",
  invalid_json: "The body is not valid JSON in UTF-8.",
  body_too_large: "The body is larger than `max` bytes. The status is 413.",
  unsupported_media_type: "`Content-Type` is not `application/json`. The status is 415.",
  subscription_limit_reached:
    "The workspace already has its maximum of `max` subscriptions: delete one first.",
};

const { min, max } = PAGE_LIMIT;

/** Error bodies as the service returns them, for each code and the most common mistakes. */
const ERROR_EXAMPLES = {
  limit_out_of_range: new ApiError("invalid_request", {
    parameter: "limit",
    reason: "out_of_range",
    min,
    max,
  }).toBody(),
  cursor_unreadable: new ApiError("invalid_request", {
    parameter: "cursor",
    reason: "unreadable",
  }).toBody(),
  status_unknown: new ApiError("invalid_request", {
    parameter: "status",
    reason: "unknown_value",
    allowed: ["active", "paused"],
  }).toBody(),
  status_missing: new ApiError("invalid_request", {
    parameter: "status",
    reason: "required",
  }).toBody(),
  property_unknown: new ApiError("invalid_request", {
    parameter: "colour",
    reason: "unknown_property",
  }).toBody(),
  url_not_https: new ApiError("invalid_request", {
    parameter: "url",
    reason: "https_required",
  }).toBody(),
  event_unknown: new ApiError("invalid_request", {
    parameter: "events.0",
    reason: "unknown_value",
    allowed: ["run.completed", "lead.created", "automation.status_changed"],
  }).toBody(),
  too_many_subscriptions: new ApiError("invalid_request", {
    reason: "subscription_limit_reached",
    max: SUBSCRIPTIONS_MAX,
  }).toBody(),
  body_too_large: new ApiError("invalid_request", {
    reason: "body_too_large",
    max: BODY_MAX_BYTES,
  }).toBody(),
  unsupported_media_type: new ApiError("invalid_request", {
    reason: "unsupported_media_type",
  }).toBody(),
  invalid_api_key: new ApiError("invalid_api_key").toBody(),
  workspace_access_denied: new ApiError("workspace_access_denied").toBody(),
  automation_not_found: new ApiError("automation_not_found").toBody(),
  webhook_not_found: new ApiError("webhook_not_found").toBody(),
  route_not_found: new ApiError("route_not_found").toBody(),
  automation_not_controllable: new ApiError("automation_not_controllable").toBody(),
  rate_limited: new ApiError("rate_limited", { retry_after_seconds: 42 }).toBody(),
  internal_error: new ApiError("internal_error").toBody(),
};

type ErrorExample = keyof typeof ERROR_EXAMPLES;

const EXAMPLE_SUMMARIES: Partial<Record<ErrorExample, string>> = {
  limit_out_of_range: "A `limit` out of range",
  cursor_unreadable: "A cursor from another list",
  status_unknown: "A status that does not exist",
  status_missing: "No status",
  property_unknown: "A property that does not exist",
  url_not_https: "A URL without HTTPS",
  event_unknown: "A kind of event that does not exist",
  too_many_subscriptions: "One subscription too many",
};

/** What each error response looks like. */
const EXAMPLES_OF: Record<ErrorResponse, ErrorExample[]> = {
  InvalidQuery: ["limit_out_of_range", "cursor_unreadable"],
  InvalidControl: ["status_unknown", "status_missing", "property_unknown"],
  InvalidSubscription: ["url_not_https", "event_unknown", "too_many_subscriptions"],
  InvalidApiKey: ["invalid_api_key"],
  WorkspaceAccessDenied: ["workspace_access_denied"],
  RouteNotFound: ["route_not_found"],
  AutomationNotFound: ["automation_not_found", "route_not_found"],
  WebhookNotFound: ["webhook_not_found", "route_not_found"],
  BodyTooLarge: ["body_too_large"],
  UnsupportedMediaType: ["unsupported_media_type"],
  AutomationNotControllable: ["automation_not_controllable"],
  RateLimited: ["rate_limited"],
  InternalError: ["internal_error"],
};

/** The error responses that operations refer to, by name. */
export function errorResponses() {
  const names = Object.keys(ERROR_RESPONSES) as ErrorResponse[];
  return names.map((name) => ({ name, response: describe(name) }));
}

function describe(name: ErrorResponse) {
  const examples = EXAMPLES_OF[name];
  const codes = new Set<ErrorCode>(examples.map((example) => ERROR_EXAMPLES[example].error.code));
  const sentences = [...codes].map(
    (code) => `\`${code}\`: ${CODES[code].when} ${CODES[code].todo}`,
  );
  const shown = examples.map((example) => [
    example,
    { summary: EXAMPLE_SUMMARIES[example] ?? `\`${example}\``, value: ERROR_EXAMPLES[example] },
  ]);
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
