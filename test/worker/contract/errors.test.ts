import { expect, test } from "vitest";
import { ErrorBodySchema } from "../../../src/contract/error-body.ts";
import {
  ApiError,
  ERRORS,
  type ErrorCode,
  type ErrorDetails,
  PORTAL_REASONS,
  REASONS,
} from "../../../src/contract/errors.ts";

const CODES = Object.keys(ERRORS) as ErrorCode[];

type Row = [message: string, code: ErrorCode, details: ErrorDetails];

test.each<Row>([
  ...CODES.map((code): Row => [ERRORS[code].message, code, {}]),
  ...Object.entries({ ...REASONS, ...PORTAL_REASONS }).map(
    ([reason, message]): Row => [message, "invalid_request", { reason } as ErrorDetails],
  ),
])("an error has a French message, its code and its details: %s", (message, code, details) => {
  const body = { error: { code, message, details } };
  expect(new ApiError(code, details).toBody()).toEqual(body);
  expect(ErrorBodySchema.parse(body)).toEqual(body);
  expect(message).toMatch(/^[A-ZÀ-Ý].+\.$/);
  // No line may begin with a sign that belongs to the word before it.
  expect(message).not.toMatch(/ [:;!?»]|« /);
  // Words that only occur in French sentences.
  expect(message).toMatch(/\b(la|le|l’|une?|ce|cette|ne doit|trop)\b/i);
});
