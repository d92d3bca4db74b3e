import { ApiError, type ErrorCode, type Reason } from "../contract/errors.ts";
import {
  BODY_MAX_BYTES,
  PAGE_LIMIT,
  SUBSCRIPTIONS_MAX,
  URL_MAX_LENGTH,
} from "../contract/limits.ts";

/** When each code is answered, and what to do then. */
export const CODES: Record<ErrorCode, { when: string; todo: string }> = {
  invalid_request: {
    when: "A query parameter or the body is wrong.",
    todo: "Mend what `details` names; sending the same again gives the same answer.",
  },
  invalid_api_key: {
    when: "The key is missing, malformed, unknown or revoked; the answer does not tell which.",
    todo: "Check the `Authorization` header, or create a new key in the settings of the workspace.",
  },
  workspace_access_denied: {
    when: "The key is good, but its workspace has no access to the service. It takes from the quota of the key; once that is used up, the answer is the same.",
    todo: "Ask an administrator of the workspace to look at its subscription.",
  },
  automation_not_found: {
    when: "The workspace has no automation with this id.",
    todo: "List the automations again: its account may have been disconnected.",
  },
  webhook_not_found: {
    when: "The workspace has no subscription with this id; a deleted one is gone.",
    todo: "After a deletion, take it for done.",
  },
  route_not_found: {
    when: "The path or its method is unknown, or this deployment does not serve it yet.",
    todo: "Compare method and path with the reference; there is no slash at the end.",
  },
  automation_not_controllable: {
    when: "The automation is `draft` or `error`.",
    todo: "Activate or repair it in the application first.",
  },
  rate_limited: {
    when: "The quota of the key is used up, or too many requests from your address had a bad key.",
    todo: "Wait for the seconds in `Retry-After`, then send the request again.",
  },
  internal_error: {
    when: "Something failed on our side.",
    todo: "Send the request again, waiting longer each time. If it stays, write to us and quote `X-Request-Id`.",
  },
};

/** What each reason means, and what would be right. */
export const REASONS_EXPLAINED: Record<Reason, string> = {
  required: "A required property is missing.",
  invalid_type: "A value is of another type than expected, or a parameter came twice.",
  unknown_value: "A value is not one of those in `allowed`.",
  out_of_range: "A number, or a number of items, lies outside `min` and `max`.",
  unreadable: "The cursor is not one that this list gave. Start again without it.",
  unknown_property: "The body has a property that does not exist: `parameter` names it.",
  invalid_url: `The URL cannot be read, or has more than ${URL_MAX_LENGTH} characters.`,
  https_required: "The URL does not begin with `https://`.",
  credentials_not_allowed: "The URL holds a user name or a password.",
  private_address: "The URL leads to a private or local address.",
  unresolvable_host: "The host of the URL has no address in the DNS.",
  invalid_json: "The body is not JSON in UTF-8.",
  body_too_large: "The body has more bytes than `max`. The status is 413.",
  unsupported_media_type: "`Content-Type` is not `application/json`. The status is 415.",
  subscription_limit_reached:
    "The workspace has as many subscriptions as it may, `max`: delete one first.",
};

const { min, max } = PAGE_LIMIT;

/** An error body for each code and for what is most often wrong, as the service gives them. */
export const ERROR_EXAMPLES = {
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

export type ErrorExample = keyof typeof ERROR_EXAMPLES;
