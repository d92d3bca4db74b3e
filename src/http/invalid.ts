import type { Hook, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ApiError } from "../contract/errors.ts";
import type { InputError } from "../contract/input-error.ts";
import { toInputError } from "../contract/parse.ts";

/**
 * The validation hook of every route. It rejects parameters and bodies that do not match their schemas.
 *
 * @throws InputError
 */
// biome-ignore lint/suspicious/noExplicitAny: the library's own type of a hook for all routes
export const refuseInvalid: Hook<any, any, any, void> = (result) => {
  if (result.success) return;
  // The validator also passes the input itself, which zod-openapi's type leaves out.
  const { error, data } = result as { error: z.ZodError; data?: unknown };
  throw toInputError(error.issues, data);
};

/** Names the invalid part of an input, unless the whole input is invalid. */
export function parameterOf({ path }: InputError): { parameter?: string } {
  return path.length > 0 ? { parameter: path.join(".") } : {};
}

/** Converts an invalid input to the error of the HTTP response. It names no parameter for an unknown id in the path. */
export function toApiError(error: InputError): ApiError {
  const { reason, ...details } = error.details;
  const parameter = parameterOf(error);
  if (reason === "not_found")
    return new ApiError("webhook_not_found", error.path[0] === "webhookId" ? {} : parameter);
  if (details.retry_after_seconds !== undefined) return new ApiError("rate_limited", details);
  return new ApiError("invalid_request", { ...parameter, ...(reason && { reason }), ...details });
}

/** Returns the query parameters of a request in the form of the validator, with a list for a repeated one. */
export function queryOf(c: Context): Record<string, string | string[] | undefined> {
  const queries = Object.entries(c.req.queries());
  return Object.fromEntries(queries.map(([name, all]) => [name, all.length > 1 ? all : all[0]]));
}
