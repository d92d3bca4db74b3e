import type { Hook, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ApiError } from "../contract/errors.ts";
import type { InputError } from "../contract/input-error.ts";
import { toInputError } from "../contract/parse.ts";

/**
 * The hook of every route: refuses parameters and bodies that do not match their schemas.
 *
 * @throws InputError
 */
// biome-ignore lint/suspicious/noExplicitAny: the library's own type of a hook for all routes
export const refuseInvalid: Hook<any, any, any, void> = (result) => {
  if (result.success) return;
  // The validator passes what it was given in either case; zod-openapi's type leaves that out.
  const { error, data } = result as { error: z.ZodError; data?: unknown };
  throw toInputError(error.issues, data);
};

/** Names the place of an invalid input, unless it is the whole. */
export function parameterOf({ path }: InputError): { parameter?: string } {
  return path.length > 0 ? { parameter: path.join(".") } : {};
}

/** The error that HTTP answers for an invalid input. For an unknown id in the path, it names no parameter. */
export function toApiError(error: InputError): ApiError {
  const { reason, ...details } = error.details;
  const parameter = parameterOf(error);
  if (reason === "not_found")
    return new ApiError("webhook_not_found", error.path[0] === "webhookId" ? {} : parameter);
  if (details.retry_after_seconds !== undefined) return new ApiError("rate_limited", details);
  return new ApiError("invalid_request", { ...parameter, ...(reason && { reason }), ...details });
}

/** The query parameters of a request, as the validator sees them: a list if one is repeated. */
export function queryOf(c: Context): Record<string, string | string[] | undefined> {
  const queries = Object.entries(c.req.queries());
  return Object.fromEntries(queries.map(([name, all]) => [name, all.length > 1 ? all : all[0]]));
}
