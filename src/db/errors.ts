import { DrizzleQueryError } from "drizzle-orm";

interface D1ErrorRule {
  /** The text that Cloudflare documents, without the `D1_ERROR: ` prefix. */
  message: string;
  /** Whether to retry immediately; applies to reads and idempotent writes. */
  retried: boolean;
  /** Whether the transaction may have been committed despite the error. */
  mayBeCommitted: boolean;
  /** `nobody`: transient; `load`: too many requests; `query`: this query is too expensive. */
  fault: "nobody" | "load" | "query";
}

const PASSES = { retried: true, mayBeCommitted: true, fault: "nobody" } as const;
const REFUSED = { retried: false, mayBeCommitted: false, fault: "load" } as const;
const TOO_MUCH = { retried: false, mayBeCommitted: false, fault: "query" } as const;

/**
 * All of D1's errors. https://developers.cloudflare.com/d1/observability/debug-d1/#error-list says
 * which to retry, for reads and idempotent writes alike. The last one comes from the Durable Object
 * that D1 runs on. Overload is not retried, because a retry would add to it
 * (https://developers.cloudflare.com/durable-objects/best-practices/error-handling/).
 *
 * The simulation and `npm run chaos` inject each before a statement runs and, if `mayBeCommitted`,
 * after it was committed.
 */
export const D1_ERRORS: readonly D1ErrorRule[] = [
  { message: "D1 DB reset because its code was updated.", ...PASSES },
  {
    message: "Internal error while starting up D1 DB storage caused object to be reset.",
    ...PASSES,
    mayBeCommitted: false,
  },
  { message: "Network connection lost.", ...PASSES },
  { message: "Internal error in D1 DB storage caused object to be reset.", ...PASSES },
  {
    message: "Cannot resolve D1 DB due to transient issue on remote node.",
    ...PASSES,
    mayBeCommitted: false,
  },
  { message: "Can't read from request stream because client disconnected.", ...PASSES },
  {
    message: "D1 DB storage operation exceeded timeout which caused object to be reset.",
    ...TOO_MUCH,
  },
  { message: "D1 DB is overloaded. Requests queued for too long.", ...REFUSED },
  { message: "D1 DB is overloaded. Too many requests queued.", ...REFUSED },
  { message: "D1 DB's isolate exceeded its memory limit and was reset.", ...TOO_MUCH },
  { message: "D1 DB exceeded its CPU time limit and was reset.", ...TOO_MUCH },
  { message: "internal error; reference =", ...PASSES },
];

/**
 * What the runtime sets on the error of a failed call of a Durable Object
 * (https://developers.cloudflare.com/durable-objects/best-practices/error-handling/).
 */
interface CallError extends Error {
  /** The object was unreachable and may be reachable again soon. */
  retryable?: boolean;
  /** The object was reset during the call, as happens at each deployment. */
  durableObjectReset?: boolean;
  /** Another call would make it worse. */
  overloaded?: boolean;
  /** The object's own code has thrown it, after retries of its own. */
  remote?: boolean;
}

/** Whether to retry immediately after this error of D1 or of a Durable Object. */
export function isRetryable(error: unknown): boolean {
  if (!(error instanceof Error) || final.has(error)) return false;
  const { retryable, durableObjectReset, overloaded, remote }: CallError = error;
  if (overloaded) return false;
  if (retryable || durableObjectReset) return true;
  return !remote && (ruleOf(error)?.retried ?? false);
}

/** Whether the same request may succeed later: the error is not the query's fault. */
export function isTransient(error: unknown): boolean {
  const { retryable, durableObjectReset, overloaded } = (error ?? {}) as CallError;
  const fault = ruleOf(error)?.fault;
  return Boolean(
    retryable || durableObjectReset || overloaded || fault === "nobody" || fault === "load",
  );
}

/** Whether a write was refused because its workspace is moving to another database. */
export function isMoving(thrown: unknown): boolean {
  const error = causeOf(thrown);
  return error instanceof Error && error.message.includes("moving: try again");
}

/**
 * What D1, or the session, has thrown. Drizzle wraps that of a query that is awaited directly, in an
 * error whose message contains the query's parameters: it must not leave the Worker.
 */
export function causeOf(error: unknown): unknown {
  return error instanceof DrizzleQueryError ? error.cause : error;
}

function ruleOf(thrown: unknown): D1ErrorRule | undefined {
  const error = causeOf(thrown);
  if (!(error instanceof Error)) return undefined;
  const text = error.message.toLowerCase();
  return D1_ERRORS.find(({ message }) => text.includes(message.replace(/\.$/, "").toLowerCase()));
}

const final = new WeakSet<object>();

/** Marks an error as not to be retried, whatever its message says: the query did not cause it. */
export function makeFinal(error: unknown): unknown {
  if (error instanceof Error) final.add(error);
  return error;
}
