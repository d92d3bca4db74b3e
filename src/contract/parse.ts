import type { z } from "@hono/zod-openapi";
import { type Details, InputError, type Path, placeOf } from "./input-error.ts";

/** Maximum missing or unknown fields that a message names. A hundred records may have thousands of them. */
const NAMED_MAX = 10;

/**
 * Parses an input.
 *
 * @param name begins the message of the error.
 * @throws InputError that names every missing field and the first other fault.
 */
export function parseInput<T extends z.ZodType>(
  schema: T,
  value: unknown,
  name?: string,
): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const error = toInputError(result.error.issues, value);
  throw name === undefined ? error : error.in(name);
}

/** Converts the issues that a schema found in an input to an error. */
export function toInputError(issues: readonly z.core.$ZodIssue[], value: unknown): InputError {
  const [first] = issues;
  if (!first) throw new Error("zod reported no issue");
  const isMissing = ({ code, path }: z.core.$ZodIssue) =>
    path.length > 0 &&
    (code === "invalid_type" || code === "invalid_value") &&
    valueAt(path, value) === undefined;
  const missing = issues.filter(isMissing);
  const other = issues.find((issue) => !isMissing(issue));
  const faults = [
    ...(missing.length > 0 ? [describeMissing(missing)] : []),
    ...(other ? [new InputError(other.path, messageOf(other, value)).message] : []),
  ];
  const error = new InputError(pathOf(first), "", detailsOf(first, value));
  error.message = faults.join("; ");
  return error;
}

/** Names the missing fields in one clause. */
function describeMissing(missing: readonly z.core.$ZodIssue[]): string {
  const places = nameFew(missing, ({ path }) => placeOf(path));
  return `${places} ${missing.length > 1 ? "are" : "is"} missing`;
}

/**
 * Returns the message of an issue. It names unknown properties by their position, because the runtime logs the errors
 * of RPC methods. A name may be personal data, as in a table whose first row was mistaken for its header.
 */
function messageOf(issue: z.core.$ZodIssue, value: unknown): string {
  if (issue.code !== "unrecognized_keys") return issue.message;
  const names = Object.keys(valueAt(issue.path, value) as object);
  const positions = nameFew(issue.keys, (key) => String(names.indexOf(key) + 1));
  return issue.keys.length > 1
    ? `the properties at positions ${positions} are unknown`
    : `the property at position ${positions} is unknown`;
}

/** Lists items; of many, only the first few, because naming each of a hundred thousand may take long. */
function nameFew<T>(items: readonly T[], toName: (item: T) => string): string {
  const more = items.length - NAMED_MAX;
  const names = items.slice(0, NAMED_MAX).map(toName);
  return `${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

function pathOf(issue: z.core.$ZodIssue): Path {
  return issue.code === "unrecognized_keys"
    ? [...issue.path, ...issue.keys.slice(0, 1)]
    : issue.path;
}

/** Returns the details of an issue for an HTTP response. */
function detailsOf(issue: z.core.$ZodIssue, value: unknown): Details {
  switch (issue.code) {
    case "unrecognized_keys":
      return { reason: "unknown_property" };
    case "too_small":
      return { reason: "out_of_range", min: Number(issue.minimum) };
    case "too_big":
      return { reason: "out_of_range", max: Number(issue.maximum) };
    case "invalid_value":
      if (typeof valueAt(issue.path, value) !== "string") break;
      return { reason: "unknown_value", allowed: issue.values.map(String) };
    case "custom":
      // A custom check gives the reason and the valid values itself.
      if (!issue.params?.reason) break;
      return { ...issue.params };
  }
  return { reason: valueAt(issue.path, value) === undefined ? "required" : "invalid_type" };
}

function valueAt(path: Path, value: unknown): unknown {
  return path.reduce(
    (parent: unknown, key) => (parent as Record<PropertyKey, unknown> | undefined)?.[key],
    value,
  );
}
