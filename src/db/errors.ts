import { DrizzleQueryError } from "drizzle-orm";
import { sleep } from "../primitives/timing.ts";

interface D1Error {
  /** The text that Cloudflare documents, without the `D1_ERROR: ` prefix. */
  message: string;
  /**
   * - `transient`: the query is retried, although the transaction may have been committed.
   * - `load`: there are too many requests, and a retry would be one more.
   * - `query`: this query is too expensive.
   */
  fault: "transient" | "load" | "query";
}

/**
 * All errors of D1 (https://developers.cloudflare.com/d1/observability/debug-d1/#error-list). The last one comes from
 * the Durable Object that D1 runs on. The simulation injects each of them.
 */
export const D1_ERRORS: readonly D1Error[] = [
  { message: "D1 DB reset because its code was updated.", fault: "transient" },
  {
    message: "Internal error while starting up D1 DB storage caused object to be reset.",
    fault: "transient",
  },
  { message: "Network connection lost.", fault: "transient" },
  { message: "Internal error in D1 DB storage caused object to be reset.", fault: "transient" },
  { message: "Cannot resolve D1 DB due to transient issue on remote node.", fault: "transient" },
  { message: "Can't read from request stream because client disconnected.", fault: "transient" },
  {
    message: "D1 DB storage operation exceeded timeout which caused object to be reset.",
    fault: "query",
  },
  { message: "D1 DB is overloaded. Requests queued for too long.", fault: "load" },
  { message: "D1 DB is overloaded. Too many requests queued.", fault: "load" },
  { message: "D1 DB's isolate exceeded its memory limit and was reset.", fault: "query" },
  { message: "D1 DB exceeded its CPU time limit and was reset.", fault: "query" },
  { message: "internal error; reference =", fault: "transient" },
];

/** Messages of calls to a Durable Object that fail at a deployment, if the runtime sets no property of `CallError`. */
const OBJECT_RESETS = [
  "Durable Object reset because its code was updated",
  "The Durable Object's code has been updated, this version can no longer access storage",
];

/**
 * The error of a failed call to a Durable Object, with the properties that the runtime sets
 * (https://developers.cloudflare.com/durable-objects/best-practices/error-handling/).
 */
interface CallError extends Error {
  /** The object was unreachable and may be reachable again soon. */
  retryable?: boolean;
  /** The object was reset during the call, as happens at each deployment. */
  durableObjectReset?: boolean;
  /** The object has too many requests, and a retry would be one more. */
  overloaded?: boolean;
  /** The object's own code has thrown the error, after retries of its own. */
  remote?: boolean;
}

/** Maximum tries of a query, or of a call to a Durable Object. */
const TRIES = 4;

/**
 * Does `work`, which must be safe to repeat. Repeats it after a transient error of D1 or of a Durable Object, with
 * exponential backoff and jitter.
 *
 * @param waitMs the approximate delay before the second try; it doubles with each try.
 */
export async function retryTransient<T>(
  work: () => T,
  { tries = TRIES, waitMs = 100 }: { tries?: number | undefined; waitMs?: number } = {},
): Promise<Awaited<T>> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt === tries || !isRetryable(error)) throw error;
      await sleep(waitMs * 2 ** (attempt - 1) * (0.5 + Math.random()));
    }
  }
}

/** Whether to retry immediately after this error of D1 or of a Durable Object. */
function isRetryable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { retryable, durableObjectReset, overloaded, remote }: CallError = error;
  if (overloaded) return false;
  if (retryable || durableObjectReset) return true;
  return !remote && faultOf(error) === "transient";
}

/** An error after which the same call may succeed later, such as that of a database that takes too long to respond. */
export class TemporaryError extends Error {}

/** Whether the same request may succeed later, because the error is not the fault of the query. */
export function isTemporary(error: unknown): boolean {
  const { retryable, durableObjectReset, overloaded } = (error ?? {}) as CallError;
  const fault = faultOf(error);
  return Boolean(
    retryable ||
      durableObjectReset ||
      overloaded ||
      fault === "transient" ||
      fault === "load" ||
      isMoving(error) ||
      error instanceof TemporaryError,
  );
}

/** Whether a write failed because its workspace is locked for a move to another database. */
export function isMoving(thrown: unknown): boolean {
  const error = causeOf(thrown);
  return error instanceof Error && error.message.includes("moving: try again");
}

/** Whether a write failed because a row that one of its rows refers to does not exist, or was removed. */
export function isReferenceMissing(thrown: unknown): boolean {
  const error = causeOf(thrown);
  return (
    error instanceof Error &&
    ["FOREIGN KEY constraint failed", "NOT NULL constraint failed: runs.automation_id"].some(
      (message) => error.message.includes(message),
    )
  );
}

/**
 * Returns the error that D1 has thrown. If a query is awaited directly, Drizzle wraps that error in
 * one whose message has the parameters of the query, so it must not leave the Worker.
 */
export function causeOf(error: unknown): unknown {
  return error instanceof DrizzleQueryError ? error.cause : error;
}

function faultOf(thrown: unknown): D1Error["fault"] | undefined {
  const error = causeOf(thrown);
  if (!(error instanceof Error)) return undefined;
  const text = error.message.toLowerCase();
  const known = D1_ERRORS.find(({ message }) =>
    text.includes(message.replace(/\.$/, "").toLowerCase()),
  );
  if (known) return known.fault;
  return OBJECT_RESETS.some((reset) => text.includes(reset.toLowerCase()))
    ? "transient"
    : undefined;
}
