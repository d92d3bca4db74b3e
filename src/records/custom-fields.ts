import { z } from "@hono/zod-openapi";
import { NESTING_MAX } from "../contract/limits.ts";
import { isText } from "../primitives/text.ts";

/** A JSON object that every store and client can hold unchanged. */
export const CustomFields = z
  .custom<Record<string, unknown>>(isPlainObject, "must be a JSON object")
  .superRefine((fields, context) => {
    const fault = findFault(fields);
    if (fault)
      context.addIssue({
        code: "custom",
        continue: false,
        ...fault,
        params: { reason: "invalid_type" },
      });
  });

/** A fault in a value. Its path has positions, because the names of the fields may be personal data. */
interface Fault {
  path: number[];
  message: string;
}

/** Finds the first part of a value that a store or client could not hold unchanged; null if there is none. */
function findFault(value: unknown, path: Fault["path"] = []): Fault | null {
  const fault = (message: string) => ({ path, message });
  if (value === null || typeof value === "boolean") return null;
  if (typeof value === "string") return isText(value) ? null : fault("must be well-formed text");
  if (typeof value === "number" && Number.isFinite(value))
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? fault(UNSAFE) : null;
  if (!Array.isArray(value) && !isPlainObject(value)) return fault("must be JSON");
  if (path.length >= NESTING_MAX) return fault(`must be nested at most ${NESTING_MAX} deep`);
  if (!Object.keys(value).every(isText)) return fault("must have names of well-formed text");
  for (const [position, item] of Object.values(value).entries()) {
    const found = findFault(item, [...path, position]);
    if (found) return found;
  }
  return null;
}

// The parser of the JSON has already rounded larger integers.
const UNSAFE = `must be between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}; write it as text`;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}
