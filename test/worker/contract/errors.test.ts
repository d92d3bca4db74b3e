import { expect, test } from "vitest";
import { ErrorBody } from "../../../src/contract/error-body.ts";
import {
  ApiError,
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  REASONS,
  type Reason,
} from "../../../src/contract/errors.ts";

const CODES = Object.keys(ERRORS) as ErrorCode[];

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
  for (const code of CODES) expect(new ApiError(code).status).toBe(ERRORS[code].statuses[0]);
  for (const status of [413, 415] as const)
    expect(new ApiError("invalid_request", {}, status).status).toBe(status);
});

type Row = [message: string, code: ErrorCode, details: ErrorDetails];

test.each<Row>([
  ...CODES.map((code): Row => [ERRORS[code].message, code, {}]),
  ...(Object.keys(REASONS) as Reason[]).map(
    (reason): Row => [REASONS[reason], "invalid_request", { parameter: "limit", reason }],
  ),
])("an error has a French message, its code and its details: %s", (message, code, details) => {
  const body = { error: { code, message, details } };
  expect(new ApiError(code, details).toBody()).toEqual(body);
  expect(ErrorBody.parse(body)).toEqual(body);
  expect(message).toMatch(/^[A-ZÀ-Ý].+\.$/);
  // Words that only occur in French sentences.
  expect(message).toMatch(/\b(la|le|l’|une?|ce|cette|n’est|ne doit|trop)\b/i);
});
