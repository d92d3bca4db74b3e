import type { ErrorDetails } from "./errors.ts";

/** A place in an input: the names and indexes that lead there; empty for the whole input. */
export type Path = readonly PropertyKey[];

/** The details of an invalid input for an HTTP response, without its place; `not_found` becomes a 404. */
export type Details = Omit<ErrorDetails, "parameter" | "reason"> & {
  reason?: ErrorDetails["reason"] | "not_found";
};

/** Invalid input. The message says in one line what is wrong and where, without the value. */
export class InputError extends Error {
  readonly path: Path;
  readonly details: Details;

  /** @param problem what is wrong; the message begins with the place. */
  constructor(path: Path | string, problem: string, details: Details = {}) {
    const parts = typeof path === "string" ? [path] : path;
    super(parts.length > 0 ? `${placeOf(parts)}: ${problem}` : problem);
    this.path = parts;
    this.details = details;
  }

  /** Puts the name of the called method in front of the message. */
  in(name: string): this {
    this.message = `${name}: ${this.message}`;
    return this;
  }
}

/** The error for a field that names something that does not exist. */
export function unknownInput(path: Path | string, problem: string): InputError {
  return new InputError(path, problem, { reason: "not_found" });
}

/** A path as text, such as `leads[0].agent.name`. */
export function placeOf(path: Path): string {
  return path.reduce<string>(
    (place, key) =>
      typeof key === "number" ? `${place}[${key}]` : `${place}${place && "."}${String(key)}`,
    "",
  );
}
