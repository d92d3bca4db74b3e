import { expect } from "vitest";
import { ERRORS, type ErrorCode, REASONS } from "../../../src/contract/errors.ts";
import type { Answer } from "./client.ts";

const MESSAGES = new Set<string>([
  ...Object.values(ERRORS).map(({ message }) => message),
  ...Object.values(REASONS),
]);

/**
 * Fails unless a response has what the contract gives every response, inside and outside `/v1`. Only files with
 * a hash in their name have neither `no-store` nor a rate limit, and no generated path is one of theirs.
 */
export function expectEnvelope({ status, headers, body }: Answer): void {
  expect(status).toBeLessThan(500);
  expect(headers["cache-control"]).toBe("no-store");
  for (const name of ["limit", "remaining", "reset"])
    expect(headers[`x-ratelimit-${name}`], name).toEqual(expect.stringMatching(/^[0-9]+$/));
  if (status < 400 || body === null) return;
  const { error } = body as {
    error: { code: ErrorCode; message: string; details: { retry_after_seconds?: number } };
  };
  expect(ERRORS[error.code].statuses).toContain(status);
  expect(MESSAGES).toContain(error.message);
  expect(headers["www-authenticate"]).toBe(status === 401 ? "Bearer" : undefined);
  if (status !== 429) return;
  expect(headers["retry-after"]).toBe(headers["x-ratelimit-reset"]);
  expect(error.details.retry_after_seconds).toBe(Number(headers["retry-after"]));
}
