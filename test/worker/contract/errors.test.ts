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

// Both lists are those of the committed document (test/worker/http/document.test.ts), in which
// `npm run check:openapi` refuses a new code without a new version.
test("the contract's error codes have their HTTP statuses", () => {
  expect(ERRORS).toMatchObject({
    invalid_request: { statuses: [400, 413, 415] },
    invalid_api_key: { statuses: [401] },
    workspace_access_denied: { statuses: [403] },
    automation_not_found: { statuses: [404] },
    webhook_not_found: { statuses: [404] },
    route_not_found: { statuses: [404] },
    automation_not_controllable: { statuses: [422] },
    rate_limited: { statuses: [429] },
    internal_error: { statuses: [500] },
  });
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
  // No line may begin with a sign that belongs to the word before it.
  expect(message).not.toMatch(/ [:;!?»]|« /);
  // Words that only occur in French sentences.
  expect(message).toMatch(/\b(la|le|l’|une?|ce|cette|ne doit|trop)\b/i);
});
