import type { z } from "@hono/zod-openapi";
import { ApiError, type ErrorDetails } from "./errors.ts";

/** A place in an input: the names and indexes that lead there; empty for the whole input. */
export type Path = readonly PropertyKey[];

/** The details of an invalid input for an HTTP response, without its place; `not_found` becomes a 404. */
export type Details = Omit<ErrorDetails, "parameter" | "reason"> & {
  reason?: ErrorDetails["reason"] | "not_found";
};

/**
 * Invalid input. The message says in one line what is wrong and where, without the value. It is for developers and
 * operators, so only the Platform API returns it. The API and the portal return the path and the details (`toApiError`).
 */
export class InputError extends Error {
  readonly path: Path;
  readonly details: Details;

  /** @param problem what is wrong at the path, or several faults as `describeFault` returns them. */
  constructor(path: Path | string, problem: string | string[], details: Details = {}) {
    const parts = typeof path === "string" ? [path] : path;
    super(typeof problem === "string" ? describeFault(parts, problem) : problem.join("; "));
    this.path = parts;
    this.details = details;
  }

  /** Puts the name of the called method in front of the message. */
  in(name: string): this {
    this.message = `${name}: ${this.message}`;
    return this;
  }
}

/**
 * The error for a field that names a webhook, or something of one, that does not exist. Over HTTP, it is a 404
 * `webhook_not_found`.
 */
export function unknownInput(path: Path | string, problem: string): InputError {
  return new InputError(path, problem, { reason: "not_found" });
}

/** Describes what is wrong at a place; an empty path is the whole input. */
function describeFault(path: Path, problem: string): string {
  return path.length > 0 ? `${placeOf(path)}: ${problem}` : problem;
}

/** A path as text, such as `leads[0].agent.name`. */
function placeOf(path: Path): string {
  return path.reduce<string>(
    (place, key) =>
      typeof key === "number" ? `${place}[${key}]` : `${place}${place && "."}${String(key)}`,
    "",
  );
}

/** Names the invalid part of an input, unless the whole input is invalid. */
export function parameterOf({ path }: InputError): { parameter?: string } {
  return path.length > 0 ? { parameter: path.join(".") } : {};
}

/** Converts an invalid input to the error of the HTTP response. */
export function toApiError(error: InputError): ApiError {
  const { reason, ...details } = error.details;
  const parameter = parameterOf(error);
  if (reason === "not_found") return new ApiError("webhook_not_found", parameter);
  if (details.retry_after_seconds !== undefined) return new ApiError("rate_limited", details);
  return new ApiError("invalid_request", { ...parameter, ...(reason && { reason }), ...details });
}

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
    ...(other ? [describeFault(other.path, messageOf(other, value))] : []),
  ];
  return new InputError(pathOf(first), faults, detailsOf(first, value));
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
