import type { Hook, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ApiError, type ErrorDetails } from "../../contract/errors.ts";

/**
 * The hook of every route: refuses parameters and bodies that do not match their schemas.
 *
 * @throws ApiError `invalid_request` that names the invalid parameter or property.
 */
// biome-ignore lint/suspicious/noExplicitAny: the library's own type of a hook for all routes
export const refuseInvalid: Hook<any, any, any, void> = (result) => {
  if (result.success) return;
  // The validator passes what it was given in either case; zod-openapi's type leaves that out.
  const { error, data } = result as { error: z.ZodError; data?: unknown };
  throw toApiError(error, data);
};

/**
 * Parses a value for a route that is not in the document, as `c.req.valid` does for those that are.
 *
 * @throws ApiError `invalid_request` that names the invalid parameter or property.
 */
export function parseAs<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw toApiError(result.error, value);
}

/** The query parameters of a request, as the validator sees them: a list if one is repeated. */
export function queryOf(c: Context): Record<string, string | string[] | undefined> {
  const queries = Object.entries(c.req.queries());
  return Object.fromEntries(queries.map(([name, all]) => [name, all.length > 1 ? all : all[0]]));
}

function toApiError({ issues: [issue] }: z.ZodError, input: unknown): ApiError {
  if (!issue) throw new Error("zod reported no issue");
  return new ApiError("invalid_request", toDetails(issue, input));
}

/** The details of the contract's 400, which name the invalid parameter or property. */
function toDetails(issue: z.core.$ZodIssue, input: unknown): ErrorDetails {
  const parameter = issue.path.join(".");
  const named = parameter === "" ? {} : { parameter };
  switch (issue.code) {
    case "unrecognized_keys":
      return { parameter: [...issue.path, issue.keys[0]].join("."), reason: "unknown_property" };
    case "too_small":
      return { ...named, reason: "out_of_range", min: Number(issue.minimum) };
    case "too_big":
      return { ...named, reason: "out_of_range", max: Number(issue.maximum) };
    case "invalid_value":
      if (typeof valueAt(issue.path, input) !== "string") break;
      return { ...named, reason: "unknown_value", allowed: issue.values.map(String) };
    case "custom":
      // A schema's own check says why, and what would be valid.
      if (!issue.params?.reason) break;
      return { ...named, ...issue.params };
  }
  const isAbsent = valueAt(issue.path, input) === undefined;
  return { ...named, reason: isAbsent ? "required" : "invalid_type" };
}

function valueAt(path: PropertyKey[], input: unknown): unknown {
  return path.reduce(
    (parent: unknown, key) => (parent as Record<PropertyKey, unknown> | undefined)?.[key],
    input,
  );
}
