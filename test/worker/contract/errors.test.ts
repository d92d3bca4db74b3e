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

// The list of reasons is that of the committed document: test/worker/http/document.test.ts.
test("the closed list of error codes is the contract's, each with its HTTP statuses", () => {
  expect(Object.entries(ERRORS).map(([code, { statuses }]) => [code, ...statuses])).toEqual([
    ["invalid_request", 400, 413, 415],
    ["invalid_api_key", 401],
    ["workspace_access_denied", 403],
    ["automation_not_found", 404],
    ["webhook_not_found", 404],
    ["route_not_found", 404],
    ["automation_not_controllable", 422],
    ["rate_limited", 429],
    ["internal_error", 500],
  ]);
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
      const { statuses, message } = ERRORS[code];
      expect(error.status).toBe(statuses[0]);
      expect(error.toBody()).toEqual({ error: { code, message, details: {} } });
      expect(ErrorBody.parse(error.toBody())).toEqual(error.toBody());
    },
  );

  test.each(Object.keys(REASONS) as Reason[])("has the reason's message: %s", (reason) => {
    const details = { parameter: "limit", reason };
    expect(new ApiError("invalid_request", details).toBody()).toEqual({
      error: { code: "invalid_request", message: REASONS[reason], details },
    });
  });

  test.each([413, 415] as const)("keeps the status of what is no plain 400: %d", (status) => {
    expect(new ApiError("invalid_request", {}, status).status).toBe(status);
  });
});
