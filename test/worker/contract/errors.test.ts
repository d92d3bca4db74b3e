import { describe, expect, test } from "vitest";
import { ErrorBody } from "../../../src/contract/error-body.ts";
import {
  ApiError,
  ERRORS,
  type ErrorCode,
  REASONS,
  type Reason,
} from "../../../src/contract/errors.ts";

/** Words that only occur in French sentences. */
const FRENCH = /\b(la|le|l’|une?|ce|cette|n’est|ne doit|trop)\b/i;

describe("the closed list of error codes", () => {
  test("has the codes of the contract, each with its HTTP statuses", () => {
    const statuses = Object.entries(ERRORS).map(([code, error]) => [code, error.statuses]);
    expect(Object.fromEntries(statuses)).toMatchObject({
      invalid_request: [400, 413, 415],
      invalid_api_key: [401],
      workspace_access_denied: [403],
      automation_not_found: [404],
      webhook_not_found: [404],
      route_not_found: [404],
      automation_not_controllable: [422],
      rate_limited: [429],
      internal_error: [500],
    });
  });

  test("is the enumeration of the error body", () => {
    expect(ErrorBody.shape.error.shape.code.options).toEqual(Object.keys(ERRORS));
  });
});

describe("the list of reasons", () => {
  test("has the reasons of the design", () => {
    expect(Object.keys(REASONS)).toEqual([
      "required",
      "invalid_type",
      "unknown_value",
      "out_of_range",
      "unreadable",
      "unknown_property",
      "invalid_url",
      "https_required",
      "credentials_not_allowed",
      "private_address",
      "unresolvable_host",
      "invalid_json",
      "body_too_large",
      "unsupported_media_type",
      "subscription_limit_reached",
      "idempotency_key_reused",
    ]);
  });
});

test.each([
  ...Object.entries(REASONS),
  ...Object.entries(ERRORS).map(([code, { message }]) => [code, message] as const),
])("%s has a French message", (_, message) => {
  expect(message).toMatch(/^[A-ZÀ-Ý].+\.$/);
  expect(message).toMatch(FRENCH);
});

describe("an error", () => {
  test.each(Object.keys(ERRORS) as ErrorCode[])(
    "has the code, its message, empty details and the usual status: %s",
    (code) => {
      const error = new ApiError(code);
      expect(error.status).toBe(ERRORS[code].statuses[0]);
      const { message } = ERRORS[code];
      expect(error.toBody()).toEqual({ error: { code, message, details: {} } });
      expect(ErrorBody.parse(error.toBody())).toEqual(error.toBody());
    },
  );

  test("has the reason's message, if it has a reason", () => {
    for (const reason of Object.keys(REASONS) as Reason[]) {
      const details = { parameter: "limit", reason };
      expect(new ApiError("invalid_request", details).toBody()).toEqual({
        error: { code: "invalid_request", message: REASONS[reason], details },
      });
    }
  });

  test("keeps the statuses for a large body and an unsupported content type", () => {
    expect(new ApiError("invalid_request", {}, 413).status).toBe(413);
    expect(new ApiError("invalid_request", {}, 415).status).toBe(415);
  });
});
